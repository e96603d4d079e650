"""Codex CLI, over /v1/responses.

It always streams. That a turn begins anew drops earlier reasoning is Qwen3's template: there a prompt does not go on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..kit.agents.documented import example
from ..kit.agents.model import EDGE
from ..kit.agents.programs import Ran, mcp_server, node_modules, run
from ..kit.models.pictures import png
from ..kit.played.scripts import call, grown, thinking
from .conftest import Served

BINARY = "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
OPTIONS = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
"""It asks nobody before it runs a command."""
PICTURE = "<|vision_start|>" + 4 * "<|image_pad|>" + "<|vision_end|>"
"""One of EDGE pixels."""
LINES = "".join(f"line {number}\n" for number in range(20_000))


MEANT = "test_a_context_that_is_full"
"""The test in which requests are refused."""
COUNTED = "lmi_requests_total{"


def counted(served: Served) -> dict[bool, int]:
    """How many requests the server has answered, and not."""
    counts = {True: 0, False: 0}
    for line in httpx.get(f"{served.url}/metrics").text.splitlines():
        if line.startswith(COUNTED):
            counts['outcome="ok"' in line] += int(float(line.split()[-1]))
    return counts


@pytest.fixture(autouse=True)
def nothing_else_is_refused(served: Served, request: pytest.FixtureRequest) -> Iterator[None]:
    """Codex asks again, or goes on, where a user would not see it."""
    before = counted(served)
    yield
    after = counted(served)
    assert after[True] > before[True]
    assert (after[False] > before[False]) is (request.function.__name__ == MEANT)


class Codex:
    """A home with docs/agents.md's configuration, and a folder to work in."""

    def __init__(self, folder: Path, served: Served, more: str = "", *, catalog: bool = False) -> None:
        """`more`: further tables of the configuration; `catalog`: with what docs/agents.md says of the model."""
        self.home = folder / "home"
        self.work = folder / "work"
        self.work.mkdir()
        self.config = self.home / ".codex" / "config.toml"
        self.config.parent.mkdir(parents=True)
        blocks = [example("Codex", "toml", served.url), more]
        if catalog:
            blocks.insert(0, example("Codex", "toml", served.url, 2))
            (self.config.parent / "models.json").write_text(example("Codex", "json", served.url))
        self.config.write_text("\n".join(blocks))

    def run(self, *words: str, options: Sequence[str] = ("--json",)) -> Ran:
        """`codex exec`."""
        return run([node_modules() / BINARY, "exec", *words, *options, *OPTIONS], self.home, within=self.work)

    def set(self, line: str) -> None:
        """Puts a line in front of the configuration, in the place of one of that name."""
        name = line.partition(" ")[0]
        others = [one for one in self.config.read_text().splitlines() if not one.startswith(f"{name} ")]
        self.config.write_text("\n".join([line, *others]))


def events(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.out.splitlines()]


def items(ran: Ran, kind: str) -> list[dict[str, Any]]:
    """The items of one kind that a run completed, which ended well."""
    done = [event["item"] for event in events(ran.well()) if event["type"] == "item.completed"]
    return [item for item in done if item["type"] == kind]


def said(ran: Ran) -> str:
    """The last thing that the user reads."""
    text: str = items(ran, "agent_message")[-1]["text"]
    return text.strip()


def shell(command: str, **arguments: Any) -> str:
    return call("exec_command", cmd=command, **arguments)


def test_tools_and_reasoning(served: Served, tmp_path: Path) -> None:
    """Several calls at once, the errors of tools, and a tool that is not there."""
    codex = Codex(tmp_path, served)
    (codex.work / "a.txt").write_text("42\n")
    turns = [
        thinking("A file.", shell("cat a.txt")),
        thinking("More.", f"Let me see.\n{shell('cat none.txt; exit 3')}\n{shell('echo hi > b.txt')}"),
        thinking("Odd.", f"{call('nothing', a=1)}\n{call('exec_command', command='ls')}"),
        thinking("Enough.", "It says 42."),
    ]
    ran = codex.run(f"What is in a.txt? {served.stage.script('codex-tools', turns)}")
    # What is called at once runs at once.
    commands = {(item["aggregated_output"], item["exit_code"]) for item in items(ran, "command_execution")}
    assert commands == {("42\n", 0), ("cat: none.txt: No such file or directory\n", 3), ("", 0)}
    assert [item["text"].strip() for item in items(ran, "agent_message")] == ["Let me see.", "It says 42."]
    assert (codex.work / "b.txt").read_text() == "hi\n"
    heard = grown(served.stage.heard("codex-tools"), 4)
    for one, words in zip(
        heard[1:], (["42"], ["No such file", "code 3"], ["unsupported", "missing field"]), strict=True
    ):
        assert all(word in one.last for word in words)
    assert heard[2].last.count("<tool_response>") == 2


def test_reasoning_is_shown(served: Served, tmp_path: Path) -> None:
    codex = Codex(tmp_path, served)
    codex.set("show_raw_agent_reasoning = true")
    mark = served.stage.script("codex-shown", [thinking("I wonder.", shell("true")), thinking("I know.", "Yes.")])
    ran = codex.run(f"Well? {mark}", options=()).well()
    assert ran.out.strip() == "Yes."
    assert ran.errors.index("I wonder.") < ran.errors.index("true") < ran.errors.index("I know.")
    assert "think>" not in ran.errors
    grown(served.stage.heard("codex-shown"), 2)


def test_servers_of_mcp(served: Served, tmp_path: Path) -> None:
    """Two of them are namespaces; tools of the same name in both, beside one of Codex's own, are called at once."""
    tables = []
    for name in ("one", "two"):
        command, *args = mcp_server("--says", name, "add", "fail", "show")
        tables.append(f"[mcp_servers.{name}]\ncommand = {command!r}\nargs = {args}\n")
    codex = Codex(tmp_path, served, "\n".join(tables))
    adds = [call("mcp__one__add", a=1, b=2), call("mcp__two__add", a=3, b=4), shell("echo hi")]
    broken = [call("mcp__two__fail"), call("mcp__one__show")]
    turns = [thinking("Sums.", "\n".join(adds)), "\n".join(broken), "3 and 7."]
    ran = codex.run(f"Add. {served.stage.script('codex-mcp', turns)}")
    calls = {(item["server"], item["tool"], item["status"]) for item in items(ran, "mcp_tool_call")}
    whole = {("one", "add"), ("two", "add"), ("one", "show")}
    assert calls == {*((*tool, "completed") for tool in whole), ("two", "fail", "failed")}
    assert said(ran) == "3 and 7."
    heard = served.stage.heard("codex-mcp")
    results = heard[1].last.split("<tool_response>")[1:]
    assert [word in text for word, text in zip(("one 3", "two 7", "hi"), results, strict=True)] == [True] * 3
    assert "It is broken." in heard[2].prompt
    grown(heard, 3)
    assert heard[2].last.split("<tool_response>\n")[-1].count(PICTURE) == heard[2].prompt.count(PICTURE) == 1


def test_images(served: Served, tmp_path: Path) -> None:
    """Of the user's, and of a tool."""
    codex = Codex(tmp_path, served)
    for name in ("a", "b"):
        (codex.work / f"{name}.png").write_bytes(png(EDGE, EDGE))
    turns = [call("view_image", path="b.png"), call("view_image", path="c.png"), "Both are red."]
    ran = codex.run(f"Which color? {served.stage.script('codex-images', turns)}", "-i", "a.png")
    assert said(ran) == "Both are red."
    first, second, third = grown(served.stage.heard("codex-images"), 3)
    assert first.prompt.count(PICTURE) == first.last.count(PICTURE) == 1
    assert second.last == f"<tool_response>\n{PICTURE}\n</tool_response>"
    assert third.prompt.count(PICTURE) == 2
    assert "unable to locate image" in third.last


def test_a_plan_and_a_goal(served: Served, tmp_path: Path) -> None:
    """A goal comes as the output of no call."""
    codex = Codex(tmp_path, served, "[tools]\nupdate_plan = { enabled = true }\n")
    turns = [
        thinking("Steps.", call("update_plan", plan=[{"step": "Look", "status": "in_progress"}])),
        call("create_goal", objective="Find it"),
        call("update_goal", status="complete"),
        "Found.",
    ]
    ran = codex.run(f"Find it. {served.stage.script('codex-plan', turns)}")
    (plan,) = items(ran, "todo_list")
    assert [item["text"] for item in plan["items"]] == ["Look"]
    assert said(ran) == "Found."
    heard = grown(served.stage.heard("codex-plan"), 4)
    assert [part.partition("\n</tool")[0] for part in heard[2].last.split("<tool_response>\n")[2:]] == ["Find it"]


def test_patches(served: Served, tmp_path: Path) -> None:
    """`apply_patch` is a custom tool, which Codex offers a model that its catalog has."""
    codex = Codex(tmp_path, served, catalog=True)
    (codex.work / "a.txt").write_text('a "b"\n')
    patches = [
        f'*** Begin Patch\n*** Update File: {name}\n@@\n-a "b"\n+c\\d\n*** End Patch\n'
        for name in ("none.txt", "a.txt")
    ]
    turns = [*(thinking("A patch.", call("apply_patch", input=patch)) for patch in patches), "Done."]
    ran = codex.run(f"Change it. {served.stage.script('codex-patches', turns)}")
    assert [item["status"] for item in items(ran, "file_change")] == ["completed"]
    assert not items(ran, "error"), "the catalog's model is not known"
    assert (codex.work / "a.txt").read_text() == "c\\d\n"
    heard = grown(served.stage.heard("codex-patches"), 3)
    assert ["none.txt" in heard[1].last, "Success" in heard[2].last] == [True, True]


def test_an_agent_of_an_agents(served: Served, tmp_path: Path) -> None:
    codex = Codex(tmp_path, served)
    inner = served.stage.script("codex-inner", [thinking("Me?", shell("echo inner > c.txt")), "I have written."])
    # Where it is told of the end only after its own answer, it answers once more.
    waits = shell("until [ -e c.txt ]; do sleep 0.1; done; sleep 1")
    outer = [call("multi_agent_v1__spawn_agent", message=f"Write. {inner}"), waits, *["It is written."] * 2]
    ran = codex.run(f"Have it written. {served.stage.script('codex-outer', outer)}")
    assert said(ran) == "It is written."
    assert (codex.work / "c.txt").read_text() == "inner\n"
    grown(served.stage.heard("codex-inner"), 2)
    assert "I have written." in served.stage.heard("codex-outer")[-1].prompt


def test_a_conversation_is_taken_up_again(served: Served, tmp_path: Path) -> None:
    codex = Codex(tmp_path, served)
    codex.run(f"Hello. {served.stage.script('codex-before', [shell('echo hi'), 'Good day.'])}").well()
    mark = served.stage.script("codex-after", [thinking("Again.", "Good night.")])
    assert said(codex.run("resume", f"Bye. {mark}", "--last")) == "Good night."
    grown([*served.stage.heard("codex-before"), *served.stage.heard("codex-after")], 3)


CHECKPOINT = "CONTEXT CHECKPOINT COMPACTION"
"""In what Codex says to have a conversation summed up."""


def test_it_sums_up_before_the_context_is_full(served: Served, tmp_path: Path) -> None:
    codex = Codex(tmp_path, served)
    codex.set("model_context_window = 16384")
    (codex.work / "a.txt").write_text(LINES[:30_000])
    after = served.stage.script("codex-summed", [thinking("On.", "Read.")])
    beside = {CHECKPOINT: f"It is being read. {after}"}
    turns = [thinking("Long.", shell("cat a.txt", max_output_tokens=9000)), shell("true")]
    assert said(codex.run(f"Read a.txt. {served.stage.script('codex-long', turns, beside)}")) == "Read."
    *before, summing = served.stage.heard("codex-long")
    grown(before, 2)
    assert "line 100\n" in summing.prompt
    (summed,) = served.stage.heard("codex-summed")
    assert "line 100\n" not in summed.prompt
    assert "It is being read." in summed.last


def test_a_context_that_is_full(served: Served, tmp_path: Path) -> None:
    """The user is told, and the conversation goes on when it is taken up: Codex forgets until it can be summed up."""
    codex = Codex(tmp_path, served)
    codex.set("tool_output_token_limit = 30000")
    (codex.work / "a.txt").write_text(LINES[:60_000])
    reads = "\n".join([shell("cat a.txt", max_output_tokens=30000)] * 3)
    ran = codex.run(f"Read a.txt. {served.stage.script('codex-full', [reads])}")
    assert ran.status == 1
    failed = events(ran)[-1]
    assert (failed["type"], "context window" in failed["error"]["message"]) == ("turn.failed", True)
    assert len(served.stage.heard("codex-full")) == 1
    taken = served.stage.script("codex-taken", ["Read."])
    assert said(codex.run("resume", f"Go on. {taken}", "--last")) == "Read."
    assert "line 100\n" not in served.stage.heard("codex-taken")[-1].prompt
