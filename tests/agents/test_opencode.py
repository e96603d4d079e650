"""opencode, over /v1/chat/completions. It has no way to ask without a stream.

Beside each loop it asks for a title, and where the context is full for a summary.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ..kit.agents.documented import example
from ..kit.agents.programs import Ran, mcp_server, node_modules, run
from ..kit.models.pictures import png
from ..kit.played.scripts import Heard, call, grown, thinking
from .conftest import Served

OFFLINE = {f"OPENCODE_DISABLE_{what}": "1" for what in ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD")}
TITLE = "You are a title generator."
SUMMED_UP = "Here is the conversation so far:"
IMAGE = "<|vision_start|>"


class Opencode:
    """A home with docs/agents.md's configuration and an MCP server, and a folder to work in."""

    def __init__(self, folder: Path, served: Served) -> None:
        self.home, self.work = folder / "home", folder / "work"
        self._stage = served.stage
        for made in (self.work, configured := self.home / ".config" / "opencode"):
            made.mkdir(parents=True)
        (self.work / "a.txt").write_text("42\n")
        (self.work / "b.txt").write_text("43\n")
        (self.work / "picture.png").write_bytes(png(56, 56))
        server = {"type": "local", "command": mcp_server("weather", "photo")}
        configuration = json.loads(example("opencode", "json", served.url))
        (configured / "opencode.json").write_text(json.dumps({**configuration, "mcp": {"city": server}}))

    def file(self, name: str) -> str:
        return str(self.work / name)

    def asks(self, text: str, mark: str, *turns: str, more: tuple[str, ...] = (), summary: str = "") -> Asked:
        """`opencode run`, by a script of the model's turns."""
        beside = {TITLE: "A title", SUMMED_UP: summary}
        marked = self._stage.script(mark, turns, {words: said for words, said in beside.items() if said})
        binary = node_modules() / "opencode-linux-x64" / "bin" / "opencode"
        options = ("--format", "json", "--thinking")
        ran = run([binary, "run", *options, f"{text} {marked}", *more], self.home, OFFLINE, within=self.work)
        heard = self._stage.heard(mark)
        return Asked(ran, [one for one in heard if TITLE not in one.prompt])


class Asked:
    """What opencode has told its user, and what it has told the model but for titles."""

    def __init__(self, ran: Ran, heard: list[Heard]) -> None:
        self.ran, self.heard = ran, heard
        self.events: list[dict[str, Any]] = [json.loads(line) for line in ran.out.splitlines()]

    def texts(self, kind: str = "text") -> list[str]:
        """Of the parts of one kind; white space alone is none."""
        return [text for event in self.events if event["type"] == kind and (text := event["part"]["text"].strip())]

    @property
    def states(self) -> list[Mapping[str, Any]]:
        """What became of each call, in the order of their ends."""
        return [event["part"]["state"] for event in self.events if event["type"] == "tool_use"]


@pytest.fixture(scope="module")
def opencode(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Opencode:
    """Whose first start in a home takes twice as long as later ones."""
    return Opencode(tmp_path_factory.mktemp("opencode"), served)


def test_a_tool_and_the_conversation_taken_up_again(opencode: Opencode) -> None:
    """With reasoning; the second question has a picture with it."""
    read = call("read", filePath=opencode.file("a.txt"))
    asked = opencode.asks("What is in a.txt?", "opencode-tool", thinking("A file.", read), thinking("I see.", "42."))
    asked.ran.well()
    assert (asked.texts("reasoning"), asked.texts()) == (["A file.", "I see."], ["42."])
    assert [state["status"] for state in asked.states] == ["completed"]
    grown(asked.heard, 2)
    assert "1: 42" in asked.heard[-1].last

    session = ("--session", asked.events[0]["sessionID"], "--file", "picture.png")
    again = opencode.asks("Which color?", "opencode-again", thinking("A color.", "Red."), more=session)
    again.ran.well()
    assert (again.texts("reasoning"), again.texts()) == (["A color."], ["Red."])
    (heard,) = again.heard
    first = asked.heard[-1].prompt
    assert heard.prompt.startswith(first[: first.index("<think>")])
    assert "42.<|im_end|>" in heard.prompt
    assert IMAGE in heard.last


def test_several_calls_at_once(opencode: Opencode) -> None:
    calls = [call("read", filePath=opencode.file("a.txt")), call("bash", command="cat b.txt", description="Reads")]
    asked = opencode.asks("Read both.", "opencode-several", "\n".join(["Both.", *calls]), "42 and 43.")
    asked.ran.well()
    assert asked.texts() == ["Both.", "42 and 43."]
    assert sorted(state["status"] for state in asked.states) == ["completed"] * 2
    grown(asked.heard, 2)
    read, _, shown = asked.heard[-1].last.partition("</tool_response>")
    assert "1: 42" in read
    assert shown == "\n<tool_response>\n43\n\n</tool_response>"


def test_tools_that_fail_and_files_that_change(opencode: Opencode) -> None:
    path = opencode.file("c.txt")
    asked = opencode.asks(
        "Make c.txt.",
        "opencode-error",
        call("read", filePath=path),
        call("write", filePath=path, content="44\n"),
        call("edit", filePath=path, oldString="no such text", newString="45"),
        call("edit", filePath=path, oldString="44", newString="45"),
        call("rename", path=path),
        "Done.",
    )
    asked.ran.well()
    assert asked.texts() == ["Done."]
    assert Path(path).read_text() == "45\n"
    assert [state["status"] for state in asked.states] == ["error", "completed", "error", "completed", "completed"]
    given = [one.last for one in asked.heard[1:]]
    for text, words in zip(given, ("not found", "success", "oldString", "success", "unavailable tool"), strict=True):
        assert words in text
    # A call of a tool that is not there it writes anew, as one of a tool `invalid`.
    last = asked.heard.pop()
    grown(asked.heard, 5)
    assert last.prompt.startswith(asked.heard[-1].prompt)


def test_a_picture_and_mcp(opencode: Opencode) -> None:
    """An MCP server's result, its error, its picture; then a file's."""
    asked = opencode.asks(
        "How is the weather?",
        "opencode-mcp",
        call("city_weather", city="Bern"),
        call("city_weather", city="Rome"),
        call("city_photo", city="Bern"),
        call("read", filePath=opencode.file("picture.png")),
        "It snows.",
    )
    asked.ran.well()
    assert asked.texts() == ["It snows."]
    assert [state["status"] for state in asked.states] == ["completed", "error", "completed", "completed"]
    grown(asked.heard, 5)
    given = [one.last for one in asked.heard[1:]]
    for text, words in zip(given, ("It snows in Bern.", "There is no city Rome.", IMAGE, IMAGE), strict=True):
        assert words in text


def test_an_agent_of_the_agents(opencode: Opencode, served: Served) -> None:
    """A tool `task` has another agent do a part, by a prompt that the model writes: the one here has its own script."""
    look = call("read", filePath=opencode.file("b.txt"))
    mark = served.stage.script("opencode-part", [thinking("A part.", look), thinking("I see.", "43 is in it.")])
    part = call("task", description="Reads b", prompt=f"What is in b.txt? {mark}", subagent_type="general")
    asked = opencode.asks("Have b.txt read.", "opencode-task", part, "It was 43.")
    asked.ran.well()
    assert asked.texts() == ["It was 43."]
    (state,) = asked.states
    assert "43 is in it." in state["output"]
    first, second = asked.heard[0], asked.heard[-1]
    assert second.prompt.startswith(first.prompt + first.said)
    assert "43 is in it." in second.last
    one, other = served.stage.heard("opencode-part")
    assert other.prompt.startswith(one.prompt + one.said)
    assert "1: 43" in other.last


def test_a_full_context_is_summed_up(opencode: Opencode, served: Served) -> None:
    """Each digit is a token: the second file is too much.."""
    digits = random.Random(0)
    for name in ("large.txt", "larger.txt"):
        lines = ["".join(digits.choices("0123456789", k=99)) for _ in range(450)]
        (opencode.work / name).write_text("\n".join(lines))
    reads = [call("read", filePath=opencode.file(name)) for name in ("large.txt", "larger.txt")]
    summary = "Two files of digits were read (summary of test_opencode)."
    asked = opencode.asks("Read both.", "opencode-full", *reads, summary=summary)
    (error,) = [event["error"] for event in asked.events if event["type"] == "error"]
    assert error["name"] == "ContextOverflowError"
    assert "prompt is too long" in error["data"]["message"]
    assert asked.ran.status == 1
    assert asked.texts()[0] == summary
    assert asked.texts()[-1] == "Noted."
    assert [one.said for one in asked.heard] == [*reads, summary]
    (after,) = [one for one in served.stage.heard("") if summary in one.prompt]
    assert "<tools>" in after.prompt
