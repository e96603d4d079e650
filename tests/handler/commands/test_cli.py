"""The command `lmi` by itself: what its commands are, and where those went that it no longer has."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from lmi.handler.commands.cli import main

from ...kit.installed import VERSION
from ...kit.rows import each_row


@each_row(
    ("given", "instead"),
    [
        (["bench", "--url", "http://127.0.0.1:8080"], 'make bench ARGS="--url ..."'),
        (["demo-model", "directory"], "make demo-model DIRECTORY=..."),
    ],
)
def test_a_command_that_left_the_package_says_what_to_use(given: list[str], instead: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == f"lmi: {given[0]} is not in the package: in a clone of the repository, {instead}"


def test_a_command_that_there_never_was(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sing"])
    assert ended.value.code == 2
    assert "invalid choice: 'sing'" in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"lmi {VERSION}\n"


@each_row(
    "arguments",
    [
        [], ["check"], ["check", "a", "b"], ["check", "a", "--set", "novalue"], ["serve", "a", "--grace", "-1"],
        ["chat", "a", "b", "c"], ["chat", "a", "--system"], ["completion", "dos"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: lmi")


def test_ctrl_c_is_status_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lmi.handler.commands.package.package", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["package", str(tmp_path), "-o", "model.tar.gz"])
    assert ended.value.code == 130


@each_row(
    ("arguments", "question"),
    [
        (["chat", "url", "Hi"], "Hi"),
        (["chat", "url", "Hi", "--system", "S"], "Hi"),
        (["chat", "url", "--system", "S", "Hi"], "Hi"),
        (["chat", "--system", "S", "url", "Hi"], "Hi"),
        (["chat", "url", "--system", "S"], None),
    ],
)
def test_a_question_wherever_it_stands(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], question: str | None
) -> None:
    asked: list[tuple[str, str | None, str | None]] = []

    def chat(given: argparse.Namespace) -> int:
        asked.append((given.model, given.question, given.system))
        return 7

    monkeypatch.setattr("lmi.handler.commands.chat.command.chat", chat)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 7
    assert asked == [("url", question, "S" if "S" in arguments else None)]


@each_row(
    ("arguments", "said"),
    [
        (["http://127.0.0.1:1", "--set", "dtype=fp32"], "--set: expected a model, which has options"),
        (["folder", "--api-key", "k"], "--api-key: expected the URL of a server, got folder"),
        (["nowhere"], "nowhere: expected a model directory, or a hub id as ORG/NAME, found nothing"),
        (["http://127.0.0.1:1", "--tools", "nowhere.json"], "--tools nowhere.json: "),
        (["http://127.0.0.1:1", "--api-key", ""], "--api-key: expected a key, got an empty one"),
    ],
)
def test_what_chat_refuses(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["chat", *arguments])
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"lmi: {said}")


@each_row(
    ("arguments", "environment", "named"),
    [(["--api-key", ""], {}, "--api-key"), (["--api-key", " "], {"LMI_API_KEY": "a key"}, "--api-key"),
     ([], {"LMI_API_KEY": ""}, "LMI_API_KEY")],
)  # fmt: skip
def test_an_empty_key_serves_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str],
    environment: dict[str, str], named: str,
) -> None:  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main(["serve", str(tmp_path), "--port", "0", *arguments])
    assert capsys.readouterr().err == f"lmi: {named}: expected a key, got an empty one\n"


@each_row("command", ["serve", "chat"])
@each_row(("key", "place"), [("a\nkey", 2), ("a\r\nkey", 2), ("\n key\x7f", 4), ("\x1bkey", 1), ("ключ\x00\n", 5)])
def test_a_key_that_no_header_can_carry(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, key: str, place: int
) -> None:
    """The message has no part of it."""
    model = str(tmp_path) if command == "serve" else "http://127.0.0.1:9"
    with pytest.raises(SystemExit):
        main([command, model, "--api-key", key])
    assert capsys.readouterr().err == (
        f"lmi: --api-key: expected a key that a header of HTTP can carry, got a control character at place {place}\n"
    )


@each_row(
    ("option", "given", "expected"),
    [
        ("--allowed-host", "http://a.example", "a name or an address, or * for any"),
        ("--allowed-origin", "a.example", "a page's scheme, name and port, as https://app.example:8443, or * for any"),
    ],
)
def test_who_is_allowed_and_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, given: str, expected: str
) -> None:
    """Told before anything starts."""
    with pytest.raises(SystemExit) as ended:
        main(["serve", str(tmp_path), "--port", "0", option, given])
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"lmi: {option} {given}: expected {expected}\n"


def test_an_engine_that_is_lost_is_status_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A start that fails would fail again; this one may not."""
    monkeypatch.setattr("lmi.handler.commands.serve.serve", lambda _: "the engine could not be rebuilt:\nno device")
    with pytest.raises(SystemExit) as ended:
        main(["serve", str(tmp_path)])
    assert ended.value.code == 3
    assert capsys.readouterr().err == "lmi: the engine could not be rebuilt: no device\n"


def test_an_error_of_the_system_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "serving.properties").write_text("option.entryPoint=lmi.handler\n")
    output = tmp_path / "nowhere" / "model.tar.gz"
    with pytest.raises(SystemExit) as ended:
        main(["package", str(tmp_path), "--output", str(output)])
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lmi: [Errno 2] No such file or directory: ")


@each_row("command", ["serve", "chat"])
def test_secure_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Where DJL Serving is not there to enforce it."""
    monkeypatch.setenv("SAGEMAKER_SECURE_MODE", "true")
    monkeypatch.setenv("SAGEMAKER_SECURITY_CONTROLS", "DISALLOW_PICKLE_FILES")
    with pytest.raises(SystemExit) as ended:
        main([command, str(tmp_path)])
    assert ended.value.code == 1
    expected = "expected false without DJL Serving, which enforces it, got true"
    assert capsys.readouterr().err == f"lmi: SAGEMAKER_SECURE_MODE: {expected}\n"
