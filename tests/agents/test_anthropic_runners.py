"""The tool runners of Anthropic's own libraries, over /v1/messages: Python's and TypeScript's.

Both first ask for a conversation that the server keeps (`thread`), and send all of it once they are told that it does
not. A context that is full is told to the user: what makes room (`compaction`) Anthropic's servers do.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..kit.agents.documented import example
from ..kit.agents.programs import mcp_server, node_modules, python_of, run
from ..kit.models.pictures import png
from ..kit.paths import AGENT_SCRIPTS
from ..kit.played.scripts import Heard, Stage, call, grown, thinking
from .conftest import Served

SEVERAL = "\n".join([call("read", file="b"), call("fail"), call("look"), call("none")])
TOOLS = [
    thinking("First.", call("read", file="a")),
    thinking("Then.", f"All of them.\n{SEVERAL}"),
    thinking("Well.", "42 and 43."),
]
NOTES = [
    thinking("Two.", call("read_note", number=1) + "\n" + call("read_note", number=2)),
    thinking("A picture.", call("see_note")),
    "7 apples.",
]
LATE = [call("read", file="a"), thinking("It is here.", call("late", word="here")), "here at last"]
LOOPS: dict[str, tuple[list[list[str]], dict[str, bool]]] = {
    "streamed": ([TOOLS], {}),
    "whole": ([TOOLS], {"stream": False}),
    "mcp": ([NOTES], {"mcp": True}),
    "late": ([LATE], {"late": True}),
    "on": ([[call("read", file="a"), "It says 42."], [call("read", file="b"), "And 43."]], {}),
    "full": ([[call("read", file="long"), "It is long."]], {}),
}
"""What the model says, by questions, and how the runner is asked."""


@dataclass(frozen=True)
class Runner:
    """What the runner of a language has shown of each loop."""

    language: str
    stage: Stage
    shown: dict[str, dict[str, Any]]

    def blocks(self, loop: str, kind: str, field: str) -> list[str]:
        """What the blocks of one kind say, of all replies."""
        return [
            block[field].strip() for reply in self.shown[loop]["replies"] for block in reply if block["type"] == kind
        ]

    def heard(self, loop: str) -> list[Heard]:
        """What the model was asked."""
        marks = [mark_of(loop, self.language, number) for number in range(len(LOOPS[loop][0]))]
        return [one for mark in marks for one in self.stage.heard(mark)]


def mark_of(loop: str, language: str, number: int) -> str:
    return f"runner-{loop}-{language}-{number}"


@pytest.fixture(scope="module", params=["python", "js"])
def runner(request: pytest.FixtureRequest, served: Served, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """All loops in one process, with docs/agents.md's example."""
    language, folder = request.param, tmp_path_factory.mktemp("runner")
    file = folder / "example.txt"
    file.write_text(example("Anthropic tool runners", language, served.url))
    loops = {
        name: {
            "questions": [
                f"Go on. {served.stage.script(mark_of(name, language, number), said)}"
                for number, said in enumerate(turns)
            ],
            "stream": True,
            **asked,
        }
        for name, (turns, asked) in LOOPS.items()
    }
    picture = base64.b64encode(png(64, 64)).decode()
    given: list[str | Path] = [file, json.dumps(loops), picture, *mcp_server("read_note", "see_note")]
    program: list[str | Path] = (
        [python_of("agents"), AGENT_SCRIPTS / "anthropic_runner.py"]
        if language == "python"
        else ["node", AGENT_SCRIPTS / "anthropic_runner.mjs", node_modules()]
    )
    return Runner(language, served.stage, json.loads(run([*program, *given], folder / "home").well().out))


@pytest.mark.parametrize("loop", ["streamed", "whole"])
def test_tools(runner: Runner, loop: str) -> None:
    assert runner.blocks(loop, "thinking", "thinking") == ["First.", "Then.", "Well."]
    assert runner.blocks(loop, "text", "text") == ["All of them.", "42 and 43."]
    assert runner.blocks(loop, "tool_use", "name") == ["read", "read", "fail", "look", "none"]
    first, second, third = runner.heard(loop)
    grown([first, second], 2)
    assert "42" in second.last
    # An image of a tool's is in a message of the user's, with which the template takes a turn to begin.
    results = third.prompt.split("<tool_response>")[2:]
    expected = ("43", "Error: ", "Here it is.", "Error: ")
    assert [said in text for said, text in zip(expected, results, strict=True)] == [True] * 4
    assert "It is broken." in results[1]
    assert third.prompt.count("<|image_pad|>") == 4


def test_a_server_of_mcp(runner: Runner) -> None:
    assert runner.blocks("mcp", "text", "text") == ["7 apples."]
    heard = runner.heard("mcp")
    assert len(heard) == 3
    grown(heard[:2], 2)
    assert "Buy 7 apples." in heard[1].last
    assert "Error: There is no note 2." in heard[1].last
    assert heard[2].prompt.count("<|image_pad|>") == 4


def test_a_tool_that_comes_late(runner: Runner) -> None:
    assert runner.blocks("late", "text", "text") == ["here at last"]
    heard = runner.heard("late")
    grown(heard, 3)
    assert "Comes late." not in heard[0].prompt
    assert 'These tools can be called from now on:\n<functions>\n<function>{"name":"late"' in heard[1].prompt
    assert "here at last" in heard[2].last


def test_a_conversation_that_goes_on(runner: Runner) -> None:
    assert runner.blocks("on", "text", "text") == ["It says 42.", "And 43."]
    heard = runner.heard("on")
    grown(heard, 4)


def test_a_full_context(runner: Runner) -> None:
    told = runner.shown["full"]
    assert (runner.blocks("full", "tool_use", "name"), told["status"]) == (["read"], 400)
    assert "prompt is too long: " in told["error"]
    assert " tokens > 65535 maximum" in told["error"]
    assert len(runner.heard("full")) == 1
