"""Backends stepped by hand, for the tests of all engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lmi.model.events import Delta, EngineEvent, Event
from lmi.model.generation import Generation

__all__ = ["PICK", "deltas", "run"]

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
    for number, one in enumerate(generations):
        backend.add(backend.prepare(number, one))
    events: list[list[Event]] = [[] for _ in generations]
    while backend.busy:
        for number, event in backend.step():
            events[number].append(event)
    return events


def deltas(events: Sequence[EngineEvent], index: int | None = None) -> list[Delta]:
    """The deltas among `events`: of all sequences, or of one."""
    return [event for event in events if isinstance(event, Delta) and index in (None, event.index)]
