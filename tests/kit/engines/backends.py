"""Backends stepped by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from lmi.model.events import Delta, EngineEvent, Event
from lmi.model.generation import Generation

__all__ = ["NUMBERS", "PICK", "deltas", "run"]

NUMBERS = itertools.count(1000)
"""Of generations, none twice, as hosts number them: what a core sent of one that was ended may come after its end."""

PICK: Any = {
    "type": "function",
    "function": {
        "name": "pick",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
"""A tool that the demo model was not taught: only a guide makes it call it rightly."""


def run(backend: Any, *generations: Generation) -> list[list[Event]]:
    """The events of each generation, all of them run at once."""
    events: dict[int, list[Event]] = {}
    for one in generations:
        events[number := next(NUMBERS)] = []
        backend.add(backend.prepare(number, one))
    while backend.busy:
        for number, event in backend.step():
            events[number].append(event)
    return [*events.values()]


def deltas(events: Sequence[EngineEvent], index: int | None = None) -> list[Delta]:
    """The deltas among `events`: of all sequences, or of one."""
    return [event for event in events if isinstance(event, Delta) and index in (None, event.index)]
