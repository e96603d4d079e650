"""Backends stepped by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from lmi.model.engine import Sink
from lmi.model.events import Delta, EngineEvent, Event
from lmi.model.generation import Generation
from lmi.model.text.prompt_pieces import whole

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
    events: list[list[Any]] = []
    sinks: dict[int, Sink] = {}
    for one in generations:
        events.append([])
        sinks[number := next(NUMBERS)] = whole(one, events[-1].append)
        backend.add(backend.prepare(number, one))
    while backend.busy:
        for number, event in backend.step():
            sinks[number](event)
    return events


def deltas(events: Sequence[EngineEvent], index: int | None = None) -> list[Delta]:
    """The deltas among `events`: of all sequences, or of one."""
    return [event for event in events if isinstance(event, Delta) and index in (None, event.index)]
