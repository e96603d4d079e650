"""the bench counts the tokens that came: by the answers' texts, whatever their usage says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ...kit.rows import each_row
from ..__main__ import main
from ..figures import Measured, Timed, arrived, figures
from ..workloads import CHAT_STREAM, CHAT_WHOLE, LMI_STREAM, LMI_WHOLE, TEXT_STREAM, TEXT_WHOLE, Workload
from .server import faulty


def named(value: object) -> str | None:
    """Of a test's case."""
    return value.name if isinstance(value, Workload) else None


LINE = b'{"token":{"id":1,"text":"a"}}\n'
CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
NULL = b'data: {"choices":[{"delta":{"content":null}}]}\n\n'
PIECE = b'data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n'
LAST = b'data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}\n\n'
COUNTED = b'data: {"choices":[],"usage":{"completion_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"


@each_row(
    ("workload", "body", "tokens", "text"),
    [
        (LMI_STREAM, LINE * 3, 3, "aaa"),
        (LMI_STREAM, b"data: " + LINE + b"\n", 1, "a"),
        (LMI_STREAM, LINE + b'{"token":{"id":-1},"generated_text":"","error":"lost"}\n', 1, "a"),
        (LMI_STREAM, LINE + b'{"error":"lost","code":424}', 1, "a"),
        (LMI_STREAM, LINE + LINE[:-5], 1, "a"),
        (LMI_WHOLE, b'{"generated_text":"a b"}', 5, "a b"),
        (LMI_WHOLE, b'{"generated_text":"","error":"lost"}', 0, ""),
        (LMI_WHOLE, b'{"generated_text":"te', 0, ""),
        (CHAT_STREAM, ROLE + CHUNK + NULL + CHUNK + COUNTED + DONE, 3, "aa"),
        (CHAT_STREAM, ROLE + CHUNK * 2 + DONE, 2, "aa"),
        (CHAT_STREAM, CHUNK * 2 + COUNTED, 0, "aa"),
        (CHAT_STREAM, CHUNK[:20] + COUNTED + DONE, 0, ""),
        (CHAT_STREAM, b'data: {"error":{"message":"lost"}}\n\n', 0, ""),
        (CHAT_WHOLE, b'{"choices":[{"message":{"content":"a b"}}],"usage":{"completion_tokens":2}}', 2, "a b"),
        (CHAT_WHOLE, b'{"choices":[{"message":{"content":null}}],"usage":{"completion_tokens":2}}', 2, ""),
        (CHAT_WHOLE, b'{"error":{"message":"lost"}}', 0, ""),
        (CHAT_WHOLE, b"", 0, ""),
        (TEXT_STREAM, PIECE * 2 + LAST + COUNTED + DONE, 3, "aa"),
        (TEXT_STREAM, PIECE * 2 + LAST + DONE, 2, "aa"),
        (TEXT_STREAM, PIECE * 2 + COUNTED, 0, "aa"),
        (TEXT_WHOLE, b'{"choices":[{"text":"a b"}],"usage":{"completion_tokens":2}}', 2, "a b"),
    ],
)
def test_what_an_answer_says(workload: Workload, body: bytes, tokens: int, text: str) -> None:
    assert (workload.tokens(body, 5), workload.text(body)) == (tokens, text)


def timed(text: str, tokens: int = 5) -> Timed:
    return Timed(0.0, [1.0], tokens, text)


@each_row(
    ("answer", "reference", "expected"),
    [
        (timed("one two three four five"), "one two three four five", (5, True)),
        # The usage says five.
        (timed("one two four five"), "one two three four five", (3, True)),
        (timed("one two three four fiv"), "one two three four five", (4, True)),
        (timed(""), "one two three four five", (0, True)),
        # A broken stream says none.
        (timed("one two", 0), "one two three four five", (0, True)),
        (timed("one two three four five", 0), "one two three four five", (0, True)),
        # Other words, and nothing to compare with.
        (timed("one two three for ever"), "one two three four five", (5, False)),
        (timed("one two three four five six"), "one two three four five", (5, False)),
        (timed("one"), None, (5, False)),
        (timed("one"), "", (5, False)),
        (timed(""), "", (5, True)),
    ],
)
def test_what_arrived(answer: Timed, reference: str | None, expected: tuple[int, bool]) -> None:
    assert arrived(answer, 5, reference) == expected


@given(pieces=st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=12), cut=st.data())
def test_no_piece_of_a_text_can_go_unnoticed(pieces: list[str], cut: st.DataObject) -> None:
    start = cut.draw(st.integers(0, len(pieces) - 1))
    end = cut.draw(st.integers(start + 1, len(pieces)))
    whole, left = "".join(pieces), "".join(pieces[:start] + pieces[end:])
    asked = len(pieces)
    tokens, proven = arrived(Timed(0.0, [], asked, left), asked, whole)
    assert proven
    assert 0 <= tokens < asked
    assert arrived(Timed(0.0, [], asked, whole), asked, whole) == (asked, True)


def test_a_token_too_many_makes_up_for_none_that_is_missing() -> None:
    answers = [timed("a", 6), timed("b", 4), timed("c", 5)]
    run = Measured(layer="x", workload=CHAT_WHOLE, connections=1, asked=5, answers=answers, seconds=1.0, cpu={})
    assert (figures(run).lost, figures(run).unproven) == (1, 3)
    # Of references there may be fewer than answers.
    assert figures(run, ["a", "b"]).unproven == 1
    lines = Measured(layer="x", workload=LMI_STREAM, connections=1, asked=5, answers=answers, seconds=1.0, cpu={})
    assert figures(lines).unproven == 0
    assert figures(lines, ["a", "b", "x"]).unproven == 1


def bench(url: str, *arguments: str) -> None:
    main(["--url", url, "--tokens", "5", "--rounds", "2", "--repeat", "1", "--connections", "3", *arguments])


REQUESTS = 18
"""Six for each of three connections; half of their prompts have odd numbers."""


@pytest.mark.parametrize(
    ("fault", "workload", "lost"),
    [
        ("drop", LMI_STREAM, REQUESTS // 2),
        # " two" is 4 of 23 characters: a fifth of the tokens, rounded up.
        ("drop", CHAT_STREAM, REQUESTS // 2),
        ("cut", LMI_WHOLE, 2 * REQUESTS // 2),
        ("cut", CHAT_WHOLE, 2 * REQUESTS // 2),
    ],
    ids=named,
)
def test_a_server_that_loses_tokens(
    fault: str, workload: Workload, lost: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with faulty(fault) as url, pytest.raises(SystemExit) as ended:
        bench(url, "--workload", workload.name, "-o", str(tmp_path / "result"))
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert f"{lost} tokens were lost" in printed.err
    assert f"| {lost} |" in printed.out
    result = json.loads((tmp_path / "result.json").read_text())
    (run,) = result["runs"]
    assert (run["requests"], run["tokens"], run["lost"], run["unproven"]) == (REQUESTS, 5 * REQUESTS - lost, lost, 0)
    assert (result["lost"], result["unproven"]) == (lost, 0)


@pytest.mark.parametrize("fault", ["", "torn"])
def test_a_server_that_loses_nothing(fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with faulty(fault) as url:
        bench(url, "-o", str(tmp_path / "result"))
    result = json.loads((tmp_path / "result.json").read_text())
    assert [(run["lost"], run["unproven"], run["tokens"]) for run in result["runs"]] == [(0, 0, 5 * REQUESTS)] * 4
    assert "360 tokens came and 0 were lost." in capsys.readouterr().out


@pytest.mark.parametrize(("more", "starts"), [((), 1), (("--restart",), 3)], ids=["once", "anew"])
def test_each_repeat_may_have_a_start_of_its_own(
    more: tuple[str, ...], starts: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with faulty("") as url:
        bench(url, "--workload", CHAT_WHOLE.name, "--repeat", "3", "-o", str(tmp_path / "result"), *more)
    assert capsys.readouterr().err.count(": starting") == starts
    runs: list[dict[str, Any]] = json.loads((tmp_path / "result.json").read_text())["runs"]
    assert [run["repeat"] for run in runs] == [0, 1, 2]


def test_a_connection_that_ends_within_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with faulty("ended") as url, pytest.raises(SystemExit):
        bench(url, "--workload", LMI_STREAM.name)
    assert "was closed in the middle of an answer" in capsys.readouterr().err


@pytest.mark.parametrize("workload", [CHAT_WHOLE, LMI_WHOLE], ids=named)
def test_answers_with_other_words(workload: Workload, capsys: pytest.CaptureFixture[str]) -> None:
    with faulty("other") as url:
        bench(url, "--workload", workload.name)
    assert f"Of {REQUESTS} answers {REQUESTS // 2} have no text to be compared with" in capsys.readouterr().out


@pytest.mark.parametrize("workload", [LMI_STREAM, CHAT_STREAM], ids=named)
def test_records_that_are_not_known_are_an_error(workload: Workload, capsys: pytest.CaptureFixture[str]) -> None:
    """Their times would be none: a TTFT of 0."""
    with faulty("strange") as url, pytest.raises(SystemExit) as ended:
        bench(url, "--workload", workload.name)
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert f"{workload.name}: none of 12 answers has what shows its records, {workload.mark.pattern.decode()}" in error
    assert "the first is" in error
