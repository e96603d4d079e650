"""Claude Code, over /v1/messages. It has no way to ask without streaming, but where a stream has failed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ..kit.agents.documented import example
from ..kit.agents.programs import mcp_server, node_modules, run
from ..kit.models.pictures import png
from ..kit.played.scripts import call, grown, thinking
from .conftest import Served

BINARY = "@anthropic-ai/claude-code-linux-x64/claude"
SUMMARY = "CRITICAL: Respond with TEXT ONLY"
"""By this its request for a summary is known."""


class Claude:
    """A home with docs/agents.md's configuration, and a folder to work in."""

    def __init__(self, folder: Path, url: str) -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        self.work.mkdir()
        (self.home / ".claude").mkdir(parents=True)
        self.settings = self.home / ".claude" / "settings.json"
        self.settings.write_text(example("Claude Code", "json", url))

    def run(self, *words: str) -> list[dict[str, Any]]:
        """`claude -p`, which asks nobody before it runs a tool; its events."""
        options = ("-p", "--output-format", "stream-json", "--verbose", "--allowedTools", "Bash,Edit,Read,mcp__notes")
        ran = run([node_modules() / BINARY, *words, *options], self.home, within=self.work).well()
        events = [json.loads(line) for line in ran.out.splitlines() if line.startswith("{")]
        assert not [one for one in events if one.get("subtype") == "api_retry"]
        return events


def shown(events: Sequence[dict[str, Any]], kind: str) -> list[Any]:
    """The blocks of one kind that the run shows: what the model thought, said or called, or what came of calls."""
    messages = [event["message"]["content"] for event in events if event["type"] in ("assistant", "user")]
    return [block for content in messages for block in content if isinstance(block, dict) and block["type"] == kind]


def result(events: Sequence[dict[str, Any]]) -> str:
    """What the user is told in the end."""
    (last,) = [event for event in events if event["type"] == "result"]
    assert last["subtype"] == "success"
    assert not last["is_error"]
    return str(last["result"])


@pytest.fixture
def claude(served: Served, tmp_path: Path) -> Claude:
    return Claude(tmp_path, served.url)


def test_a_file_is_read_and_changed(served: Served, claude: Claude) -> None:
    file = claude.work / "a.txt"
    file.write_text("42\n")
    # It sends back the first of these, whether it was said or not.
    change = call("Edit", replace_all=False, file_path=str(file), old_string="42", new_string="43")
    turns = [
        thinking("A file.", call("Read", file_path=str(file))),
        thinking("One more.", f"I change it.\n{change}"),
        thinking("It is done.", "It says 43."),
    ]
    events = claude.run(f"Add one. {served.stage.script('claude-edit', turns)}")
    assert result(events).strip() == "It says 43."
    assert [block["thinking"].strip() for block in shown(events, "thinking")] == ["A file.", "One more.", "It is done."]
    assert [block["text"].strip() for block in shown(events, "text")] == ["I change it.", "It says 43."]
    assert file.read_text() == "43\n"
    heard = grown(served.stage.heard("claude-edit"), 3)
    assert "42" in heard[1].last
    # What only keeps the place of tools that are found later is nothing that the model should see.
    assert "DeferredToolPlaceholder" not in heard[0].prompt


def test_several_calls_at_once_with_an_image_and_errors(served: Served, claude: Claude) -> None:
    (claude.work / "a.txt").write_text("42\n")
    (claude.work / "red.png").write_bytes(png(64, 64))
    calls = [call("Read", file_path=str(claude.work / name)) for name in ("none.txt", "red.png", "a.txt")]
    turns = ["\n".join([*calls, call("Bash", command="echo so; exit 3", description="Fails")]), "Two are there."]
    events = claude.run(f"Look. {served.stage.script('claude-several', turns)}")
    assert result(events) == "Two are there."
    assert sorted(bool(block.get("is_error")) for block in shown(events, "tool_result")) == [False, False, True, True]
    first, second = grown(served.stage.heard("claude-several"), 2)
    results = second.prompt[len(first.prompt + first.said) :].split("<tool_response>")[1:]
    expected = ("Error: File does not exist", "", "42", "Error: Exit code 3\nso")
    assert [said in text for said, text in zip(expected, results, strict=True)] == [True] * 4
    assert second.prompt.count("<|image_pad|>") == 4


def test_tools_of_an_mcp_server_that_a_search_finds(served: Served, claude: Claude) -> None:
    command, *args = mcp_server("read_note", "see_note")
    server = {"command": command, "args": args}
    (claude.home / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": server}}))
    turns = [
        thinking("A search.", call("ToolSearch", query="select:mcp__notes__read_note,mcp__notes__see_note")),
        thinking("Both.", call("mcp__notes__read_note", number=1) + "\n" + call("mcp__notes__read_note", number=2)),
        thinking("And the picture.", call("mcp__notes__see_note")),
        "7 apples.",
    ]
    question = f"What is in the notes? {served.stage.script('claude-mcp', turns)}"
    events = claude.run(question, "--mcp-config", str(claude.home / "mcp.json"), "--strict-mcp-config")
    assert result(events) == "7 apples."
    heard = served.stage.heard("claude-mcp")
    assert "read_note" in heard[0].prompt
    assert "Reads a note." not in heard[0].prompt
    grown(heard[:3], 3)
    found, given = heard[1].last, heard[2].last
    assert '<functions>\n<function>{"name":"mcp__notes__read_note","description":"Reads a note."' in found
    assert "Buy 7 apples." in given
    assert "Error: There is no note 2." in given
    assert heard[3].prompt.count("<|image_pad|>") == 4


@pytest.mark.parametrize("told", [True, False], ids=["its size is known", "by the error"])
def test_a_full_context(served: Served, claude: Claude, *, told: bool) -> None:
    """It is summarised, and the conversation goes on after the summary."""
    if not told:
        settings = json.loads(claude.settings.read_text())
        del settings["env"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"]
        claude.settings.write_text(json.dumps(settings))
    files = [claude.work / f"{name}.txt" for name in "abc"]
    for file in files:
        file.write_text("".join(f"{file.name} has the line {line} here\n" for line in range(1500)))
    mark = f"claude-full-{'told' if told else 'not'}"
    reads = [call("Read", file_path=str(file)) for file in files]
    summary = f"<summary>They are long. {served.stage.script(f'{mark}-on', ['Done after the summary.'] * 4)}</summary>"
    events = claude.run(f"Read all. {served.stage.script(mark, reads, beside={SUMMARY: summary})}")
    assert result(events) == "Done after the summary."
    assert [event["compact_metadata"]["trigger"] for event in events if event.get("subtype") == "compact_boundary"]
    (heard,) = served.stage.heard(f"{mark}-on")
    assert "They are long." in heard.prompt
    assert "a.txt has the line 9 here" not in heard.prompt


def test_a_conversation_that_goes_on(served: Served, claude: Claude) -> None:
    (claude.work / "a.txt").write_text("42\n")
    command = call("Bash", command="cat a.txt", description="Shows it")
    claude.run(f"What is in a.txt? {served.stage.script('claude-first', [command, 'It says 42.'])}")
    events = claude.run(f"And twice that? {served.stage.script('claude-again', ['84.'])}", "--continue")
    assert result(events) == "84."
    (again,) = served.stage.heard("claude-again")
    grown([*served.stage.heard("claude-first"), again], 3)
