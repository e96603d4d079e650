"""How far the start of a model is, by what the engine and this handler log meanwhile (model/vllm_messages.py).

lines --take--> steps, one after the other, the last one with a share that is done; facts of what is up
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ....model.vllm_messages import START_FACTS, START_STEPS

__all__ = ["Start", "Step"]

OURS = (
    (re.compile(r"the KV cache holds (?P<value>\d+ tokens.*)"), "KV cache"),
    (re.compile(r"engine (?P<value>\S+ \S+) is ready, context \d+ tokens"), "engine"),
    (re.compile(r"engine \S+ \S+ is ready, context (?P<value>\d+ tokens)"), "context"),
)
"""Lines of ours (model/vllm/setup/cache_room.py, model/process/client.py), and what they tell."""
LAST = "preparing the engine"
"""The step after one that is done: it may be the last."""
NUMBER = re.compile(r"(?<![\w=.])\d{4,}")


@dataclass
class Step:
    """A part of the start."""

    name: str
    began: float
    """By the clock that Start was given."""
    ended: float | None = None
    done: int = 0
    total: int = 0
    """How much of it is done, of how much; no total where nobody says it."""


@dataclass
class Start:
    """The steps so far and the facts."""

    clock: Callable[[], float] = time.monotonic
    steps: list[Step] = field(default_factory=list[Step])
    facts: dict[str, str] = field(default_factory=dict[str, str])
    """What is up: `engine`, `context`, `KV cache`, and what of vLLM's memory it says."""

    def __post_init__(self) -> None:
        self._begin("starting the engine")

    def take(self, line: str) -> None:
        """A line of the log."""
        for pattern, name in (*OURS, *START_FACTS):
            if found := pattern.search(line):
                self.facts[name] = NUMBER.sub(lambda number: f"{int(number[0]):,}", found["value"])
        for pattern, name in START_STEPS:
            if found := pattern.search(line):
                step = self._begin(name)
                given = found.groupdict()
                if given.get("total"):
                    step.done, step.total = int(given["done"]), int(given["total"])
                    if step.done == step.total and step is self.steps[-1]:
                        self._begin(LAST)

    def end(self) -> None:
        """Nothing more comes."""
        self.steps[-1].ended = self.steps[-1].ended or self.clock()

    def _begin(self, name: str) -> Step:
        """The step of that name: a new one, unless it is the last one or has been there."""
        for step in self.steps:
            if step.name == name:
                return step
        now = self.clock()
        if self.steps:
            self.steps[-1].ended = now
        self.steps.append(Step(name, now))
        return self.steps[-1]
