"""Loops that every library goes through whose user writes the tools himself, and what must be seen of them.

A script of tests/agents/scripts runs all loops of one API in one process, for its imports take longer than they do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..paths import AGENT_SCRIPTS
from ..played.scripts import Heard, Stage, call, grown, thinking
from .programs import python_of, run

__all__ = ["IMAGE", "LOOPS", "Loop", "Played", "play"]

IMAGE = "<|image_pad|>"
BEFORE = "-before"
A, B = call("read_file", path="a.txt"), call("read_file", path="b.txt")
FILES = {"a.txt": "42\n", "b.txt": "43\n"}


@dataclass(frozen=True)
class Loop:
    """What is asked and said, and what comes of it."""

    asks: str
    turns: Sequence[str]
    answer: str
    thoughts: Sequence[str] = ()
    given: Sequence[str] = ()
    """What the model is given in the end, in this order."""
    results: Sequence[str] = ()
    """Texts of results as the library tells them to its user."""
    earlier: str = ""
    """The loop whose conversation this one takes up again."""
    beside: Mapping[str, str] | None = None
    """What is asked beside the loop, as in `Stage.script`."""


TOOL = Loop(
    "What is in a.txt?",
    [thinking("A file.", A), thinking("I see.", "It says 42.")],
    "It says 42.",
    ["A file.", "I see."],
    ["<tool_response>", "42", "</tool_response>"],
    ["42\n"],
)
LOOPS = {
    "tool": TOOL,
    "whole": replace(TOOL, asks="What is in a.txt, in one piece?"),
    "several": Loop(
        "What is in both files?",
        [f"Both.\n{A}\n{B}", "42 and 43."],
        "42 and 43.",
        given=["<tool_response>", "42", "</tool_response>", "<tool_response>", "43", "</tool_response>"],
        results=["42\n", "43\n"],
    ),
    "error": Loop(
        "What is in none.txt?",
        [thinking("A file.", call("read_file", path="none.txt")), thinking("It is not there.", A), "It says 42."],
        "It says 42.",
        ["A file.", "It is not there."],
        ["42"],
        ["42\n"],
    ),
    "picture": Loop("Which colour is this?", [thinking("Colours.", "Red.")], "Red.", ["Colours."], [IMAGE]),
    "look": Loop("Which colour does the camera see?", [call("look"), "Red."], "Red.", given=["<tool_response>", IMAGE]),
    "mcp": Loop(
        "How is the weather?",
        [call("weather", city="Bern"), "It snows."],
        "It snows.",
        given=["It snows in Bern."],
        results=["It snows in Bern."],
    ),
    "full": Loop("Read it all.", [call("flood"), "Never said."], ""),
    "again": Loop(
        "And in b.txt?", [B, "That says 43."], "That says 43.", given=["43"], results=["43\n"], earlier="several"
    ),
}


class Played:
    """What a script saw, loop by loop, and what the model was given."""

    def __init__(self, name: str, stage: Stage, loops: Mapping[str, Loop], told: Mapping[str, dict[str, Any]]) -> None:
        self.name = name
        self._stage = stage
        self._loops = loops
        self.told = told

    def heard(self, loop: str) -> list[Heard]:
        """The prompts of a loop, or of the one before it (`loop` and BEFORE)."""
        return self._stage.heard(f"{self.name}-{loop}")

    def check(
        self,
        loop: str,
        *,
        thoughts: bool = True,
        grows: bool = True,
        failure: str = "none.txt",
    ) -> None:
        """What was seen is what the loop says.

        thoughts: the library shows them; grows: each prompt goes on after what was said to the one before; failure:
        what the library makes of a tool's error.
        """
        plan, told, heard = self._loops[loop], self.told[loop], self.heard(loop)
        assert "error" not in told, told
        failed = [result for result in told["results"] if failure in result]
        assert len(failed) == (loop == "error"), told
        seen = [told["answer"].strip(), [thought.strip() for thought in told["thoughts"]], told["results"]]
        expected = [plan.answer, list(plan.thoughts) if thoughts else [], [*failed, *plan.results]]
        assert seen == expected, f"{seen}\n{expected}"
        assert [one.said for one in heard] == list(plan.turns), heard
        rest = heard[-1].prompt if loop == "picture" else heard[-1].prompt.rpartition(f"[[{self.name}-{loop}]]")[2]
        for given in [*failed, *plan.given]:
            assert given in rest, f"{given}\n{heard[-1].prompt}"
            rest = rest.partition(given)[2]
        if grows:
            chain = [*(self.heard(loop + BEFORE) if plan.earlier else ()), *heard]
            grown(chain, len(chain))

    def refused(self, loop: str, error: str) -> None:
        """A prompt was too long for the model, and the library said so by raising `error`."""
        told = self.told[loop]
        assert told["error"] == error, told
        assert "prompt is too long: " in told["message"], told
        assert len(self.heard(loop)) == 1


def play(
    stage: Stage,
    name: str,
    folder: Path,
    script: str,
    configuration: str,
    loops: Mapping[str, Loop] = LOOPS,
    *,
    environment: str = "agents",
    **variables: str,
) -> Played:
    """Runs a script of tests/agents/scripts; `configuration` is a module that it imports, `configured`.

    name: of the library and the API, for the marks; environment: the one in which the library is.
    """
    for file, text in {**FILES, "configured.py": configuration}.items():
        (folder / file).write_text(text)
    asked: dict[str, list[str]] = {}
    for loop, plan in loops.items():
        both = {loop + BEFORE: loops[plan.earlier], loop: plan} if plan.earlier else {loop: plan}
        asked[loop] = [
            f"{one.asks} {stage.script(f'{name}-{part}', one.turns, one.beside)}" for part, one in both.items()
        ]
    ran = run(
        [python_of(environment), AGENT_SCRIPTS / script, json.dumps(asked)],
        folder / "home",
        {"PYTHONPATH": str(folder), **variables},
        within=folder,
    ).well()
    rows = [json.loads(line) for line in ran.out.splitlines() if line.startswith('{"loop": ')]
    return Played(name, stage, loops, {row.pop("loop"): row for row in rows})
