"""Codex CLI, over /v1/responses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..kit.agents.documented import example
from ..kit.agents.programs import Ran, node_modules, run
from ..kit.played.scripts import call, thinking
from .conftest import Served

BINARY = "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"


class Codex:
    """A home with docs/agents.md's configuration, and a folder to work in."""

    def __init__(self, folder: Path, url: str) -> None:
        self.home = folder / "home"
        self.work = folder / "work"
        self.work.mkdir()
        (self.home / ".codex").mkdir(parents=True)
        (self.home / ".codex" / "config.toml").write_text(example("Codex", "toml", url))

    def run(self, *words: str) -> Ran:
        """`codex exec`, which asks nobody before it runs a command."""
        options = ("--skip-git-repo-check", "--json", "--dangerously-bypass-approvals-and-sandbox")
        return run([node_modules() / BINARY, "exec", *options, *words], self.home, within=self.work).well()


def items(ran: Ran, kind: str) -> list[dict[str, Any]]:
    """The items of one kind that the run completed."""
    events = [json.loads(line) for line in ran.out.splitlines()]
    done = [event["item"] for event in events if event["type"] == "item.completed"]
    return [item for item in done if item["type"] == kind]


def test_a_tool(served: Served, tmp_path: Path) -> None:
    codex = Codex(tmp_path, served.url)
    (codex.work / "a.txt").write_text("42\n")
    mark = served.stage.script(
        "codex-tool", [thinking("A file.", call("exec_command", cmd="cat a.txt")), "It says 42."]
    )
    ran = codex.run(f"What is in a.txt? {mark}")
    (command,) = items(ran, "command_execution")
    assert (command["aggregated_output"], command["exit_code"]) == ("42\n", 0)
    assert [item["text"] for item in items(ran, "agent_message")][-1] == "It says 42."
    first, second = served.stage.heard("codex-tool")
    assert second.prompt.startswith(first.prompt + first.said)
    assert "42" in second.last
