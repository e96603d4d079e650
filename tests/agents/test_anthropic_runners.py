"""The tool runners of Anthropic's own libraries, over /v1/messages: Python's and TypeScript's.

Both first ask for a conversation that the server keeps (`thread`), and send all of it once they are told that it does
not.
A context that is full is told to the user: what makes room (`compaction`) Anthropic's servers do.
"""

from __future__ import annotations

import base64
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ..kit.agents.documented import example
from ..kit.agents.programs import node_modules, python_of, run
from ..kit.models.pictures import png
from ..kit.played.scripts import call, thinking
from .conftest import Served

SCRIPTS = Path(__file__).with_name("scripts")
PICTURE = base64.b64encode(png(64, 64)).decode()
LANGUAGES = ("python", "typescript")

both = pytest.mark.parametrize("language", LANGUAGES)


def ran(served: Served, folder: Path, language: str, *questions: str, **loop: Any) -> dict[str, Any]:
    """What the runner of a language shows of one loop, with docs/agents.md's example."""
    file = folder / "example.txt"
    file.write_text(example("Anthropic tool runners", language, served.url))
    given = json.dumps({"questions": questions, "stream": True, "picture": PICTURE, **loop})
    command: list[Any] = (
        [python_of("agents"), SCRIPTS / "anthropic_runner.py", file, given]
        if language == "python"
        else ["node", SCRIPTS / "anthropic_runner.mjs", file, given, node_modules()]
    )
    shown: dict[str, Any] = json.loads(run(command, folder / "home").well().out)
    return shown


def blocks(shown: dict[str, Any], kind: str, field: str) -> list[str]:
    """What the blocks of one kind say, of all replies."""
    return [block[field].strip() for reply in shown["replies"] for block in reply if block["type"] == kind]


def grown(served: Served, marks: list[str], count: int) -> list[Any]:
    """What bore the marks: each prompt goes on after what was said to the one before it."""
    heard = [one for mark in marks for one in served.stage.heard(mark)]
    assert len(heard) == count
    for earlier, later in itertools.pairwise(heard):
        assert later.prompt.startswith(earlier.prompt + earlier.said)
    return heard


@both
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_tools(served: Served, tmp_path: Path, language: str, *, stream: bool) -> None:
    mark = f"runner-tools-{language}-{'stream' if stream else 'whole'}"
    several = "\n".join([call("read", file="b"), call("fail"), call("look"), call("none")])
    turns = [
        thinking("First.", call("read", file="a")),
        thinking("Then.", f"All of them.\n{several}"),
        thinking("Well.", "42 and 43."),
    ]
    shown = ran(served, tmp_path, language, f"Read. {served.stage.script(mark, turns)}", stream=stream)
    assert blocks(shown, "thinking", "thinking") == ["First.", "Then.", "Well."]
    assert blocks(shown, "text", "text") == ["All of them.", "42 and 43."]
    assert blocks(shown, "tool_use", "name") == ["read", "read", "fail", "look", "none"]
    first, second, third = served.stage.heard(mark)
    assert second.prompt.startswith(first.prompt + first.said)
    assert "42" in second.last
    # With an image, which is in a message of the user's, the template takes a turn to begin.
    results = third.prompt.split("<tool_response>")[2:]
    expected = ("43", "Error: ", "Here it is.", "Error: ")
    assert [said in text for said, text in zip(expected, results, strict=True)] == [True] * 4
    assert "It is broken." in results[1]
    assert third.prompt.count("<|image_pad|>") == 4


@both
def test_a_server_of_mcp(served: Served, tmp_path: Path, language: str) -> None:
    mark = f"runner-mcp-{language}"
    reads = call("read_note", number=1) + "\n" + call("read_note", number=2)
    turns = [thinking("Two.", reads), thinking("A picture.", call("see_note")), "7 apples."]
    server = [sys.executable, str(SCRIPTS / "notes_mcp.py")]
    shown = ran(served, tmp_path, language, f"What is noted? {served.stage.script(mark, turns)}", mcp=server)
    assert blocks(shown, "text", "text") == ["7 apples."]
    first, second, third = served.stage.heard(mark)
    assert second.prompt.startswith(first.prompt + first.said)
    assert "Buy 7 apples." in second.last
    assert "Error: There is no note 2." in second.last
    assert third.prompt.count("<|image_pad|>") == 4


@both
def test_a_tool_that_comes_late(served: Served, tmp_path: Path, language: str) -> None:
    mark = f"runner-late-{language}"
    turns = [call("read", file="a"), thinking("It is here.", call("late", word="here")), "here at last"]
    shown = ran(served, tmp_path, language, f"Wait. {served.stage.script(mark, turns)}", late=True)
    assert blocks(shown, "text", "text") == ["here at last"]
    heard = grown(served, [mark], 3)
    assert "Comes late." not in heard[0].prompt
    assert 'These tools can be called from now on:\n<functions>\n<function>{"name":"late"' in heard[1].prompt
    assert "here at last" in heard[2].last


@both
def test_a_conversation_that_goes_on(served: Served, tmp_path: Path, language: str) -> None:
    marks = [f"runner-on-{language}-{number}" for number in (1, 2)]
    turns = [[call("read", file="a"), "It says 42."], [call("read", file="b"), "And 43."]]
    questions = [f"Next? {served.stage.script(mark, said)}" for mark, said in zip(marks, turns, strict=True)]
    shown = ran(served, tmp_path, language, *questions)
    assert blocks(shown, "text", "text") == ["It says 42.", "And 43."]
    grown(served, marks, 4)


@both
def test_a_full_context(served: Served, tmp_path: Path, language: str) -> None:
    mark = f"runner-full-{language}"
    turns = [call("read", file="long"), "It is long."]
    shown = ran(served, tmp_path, language, f"Read it. {served.stage.script(mark, turns)}")
    assert (blocks(shown, "tool_use", "name"), shown["status"]) == (["read"], 400)
    assert "prompt is too long: " in shown["error"]
    assert " tokens > 65535 maximum" in shown["error"]
    assert len(served.stage.heard(mark)) == 1
