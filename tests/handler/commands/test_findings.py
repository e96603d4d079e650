"""What `lmi check` finds: in groups, with what to write instead, and as JSON in a form that stays."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lmi.handler.commands.findings import as_json, findings, report

from ...kit.api.handler import lmi_command
from ...kit.api.options import Finding
from ...kit.rows import each_row


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    """What is found of it without a library."""
    (tmp_path / "serving.properties").write_text("option.backend=mine:Engine\noption.model_id=a-hub/id\n")
    (tmp_path / "mine.py").write_text("class Engine: ...\n")
    return tmp_path


def errors(model_dir: Path, **options: str) -> dict[str | None, str | None]:
    """By option, what to write instead."""
    found = findings(model_dir, options)
    assert {finding.level for finding in found} == {"error"}
    return {finding.option: finding.instead for finding in found}


def test_each_error_by_itself(model_dir: Path) -> None:
    """All that is wrong, each with its option; check.py tells them as one."""
    found = errors(
        model_dir,
        tensor_paralel_degree="2",
        rolling_batch="vlm",
        async_mode="yes",
        max_rolling_batch_size="many",
        response_prefix_tokens="x",
    )
    assert found == {
        "tensor_paralel_degree": None,
        "rolling_batch": None,
        "async_mode": "option.async_mode=true",
        "max_rolling_batch_size": None,
    }


@each_row(
    ("name", "text", "instead"),
    [
        ("async_mode", "off", "option.async_mode=false"),
        ("async_mode", "perhaps", None),
        # A default is what stands there without the option, and not what was meant.
        ("tensor_parallel_degree", "two", None),
        ("engine_stall_timeout", "long", None),
        ("dtype", "fp32 # memory", "option.dtype=fp32"),
        ("dtype", "int8", "option.quantize=fp8"),
        ("model_id", '"owner/model"', "option.model_id=owner/model"),
        ("max_image_bytes", '"5" # bytes', "option.max_image_bytes=5"),
        ("task", "reranking", "option.task=text-ranking"),
    ],
)
def test_instead(model_dir: Path, name: str, text: str, instead: str | None) -> None:
    """What is certain; what is like something else is asked in the message."""
    assert errors(model_dir, **{name: text}) == {name: instead}


def test_an_option_of_the_environment_is_told_by_its_variable(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTION_ASYNC_MODE", "1")
    monkeypatch.setenv("OPTION_ROLLING_BATCH", "vlm")
    messages = [finding.message for finding in findings(model_dir, {})]
    assert sorted(message.partition(":")[0] for message in messages) == ["OPTION_ASYNC_MODE", "OPTION_ROLLING_BATCH"]


@pytest.mark.parametrize(
    ("environment", "option"),
    [
        ({"SM_VLLM_API_KEY": "secret"}, None),
        ({"SAGEMAKER_SECURE_MODE": "true"}, None),
        ({"SM_VLLM_MAX_LORAS": "many"}, "max_loras"),
        ({"MODEL_ID": "a/b", "SPECULATE": "few"}, "speculative_draft_model"),
        ({"SM_VLLM_ENABLE_LORA": "perhaps"}, "enable_lora"),
    ],
    ids=str,
)
def test_the_option_is_never_a_variable(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], option: str | None
) -> None:
    """The message names the variable."""
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    (found,) = findings(model_dir, {})
    assert (found.level, found.option) == ("error", option)
    variable = "SAGEMAKER_SECURITY_CONTROLS" if "SAGEMAKER_SECURE_MODE" in environment else [*environment][-1]
    assert found.message.startswith(f"{variable}: ")


def test_a_file_that_cannot_be_read(model_dir: Path) -> None:
    (model_dir / "serving.properties").write_text("option.x=\\u12\n")
    (found,) = findings(model_dir, {})
    assert (found.level, found.option, found.instead) == ("error", None, None)
    assert found.message.startswith("serving.properties: ")


def test_groups(capsys: pytest.CaptureFixture[str]) -> None:
    """Errors first; a group that is empty is left out."""
    report([Finding("fact", "F"), Finding("note", "N"), Finding("error", "E", "x", "option.x=1"), Finding("note", "M")])
    assert capsys.readouterr().out.splitlines() == [
        "errors: it cannot be served as it is",
        "  E",
        "notes",
        "  N",
        "  M",
        "checked",
        "  F",
    ]


def test_colours(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, unless NO_COLOR is set."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for variable, value in (("TERM", "xterm"), ("NO_COLOR", "1")):
        monkeypatch.setenv(variable, value)
        report([Finding("error", "E")])
    coloured, plain = capsys.readouterr().out.split("  E\n")[:2]
    assert coloured.startswith("\x1b[1;31merrors: ")
    assert "\x1b" not in plain


def test_the_json_for_programs() -> None:
    """What is not there is left out."""
    document = json.loads(as_json(Path("folder"), [Finding("warning", "W", "x", "option.x=1"), Finding("fact", "F")]))
    assert document == {
        "version": 1,
        "model_dir": "folder",
        "ok": True,
        "findings": [
            {"level": "warning", "message": "W", "option": "x", "instead": "option.x=1"},
            {"level": "fact", "message": "F"},
        ],
    }


def test_the_command(model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings fail nothing; an error is exit status 1, in either form, on standard output."""
    lmi_command(["check", str(model_dir)])
    assert "warnings: " in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        lmi_command(["check", str(model_dir), "--json", "--set", "async_mode=1"])
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["ok"] is False
    assert "lmi:" not in said.err
