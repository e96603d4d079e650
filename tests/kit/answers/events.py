"""Answers fed by hand and put together, for the tests of all dialects."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lmi.formatters.base import ResponseEncoder
from lmi.model.events import Event, Finish, FinishReason

__all__ = ["JoinedCall", "Told", "end", "feed", "join_calls", "same_shape"]

Told = Event | tuple[int, Event]
"""An event of the first prompt, or of the prompt with this number."""


def feed(reply: ResponseEncoder, *events: Told) -> list[bytes]:
    """The records that events become. None of them is empty, and no event comes after the last."""
    records: list[bytes] = []
    for told in events:
        prompt, event = told if isinstance(told, tuple) else (0, told)
        assert not reply.finished
        records += reply.feed(event, prompt)
    assert all(records)
    return records


def end(reason: FinishReason = "eos", count: int = 1, **more: Any) -> Finish:
    """The end of a sequence of `count` tokens."""
    return Finish(reason, generated_tokens=count, **more)


@dataclass
class JoinedCall:
    """A tool call as a client joins it from deltas."""

    id: str = ""
    name: str = ""
    text: str = ""
    """Its arguments, as JSON text."""
    pieces: int = 0
    """How many deltas brought some of the arguments."""

    @property
    def arguments(self) -> Any:
        """The arguments, decoded."""
        return json.loads(self.text)


def join_calls(deltas: Iterable[tuple[int, str | None, str | None, str | None]]) -> list[JoinedCall]:
    """The calls that deltas (index, id, name, arguments) make up. Calls are numbered in the order they begin."""
    calls: list[JoinedCall] = []
    for index, call_id, name, arguments in deltas:
        if index == len(calls):
            calls.append(JoinedCall())
        call = calls[index]
        # Clients join strings: what comes twice would be doubled.
        call.id += call_id or ""
        call.name += name or ""
        call.text += arguments or ""
        call.pieces += bool(arguments)
    return calls


def same_shape(given: Any, documented: Any, place: str = "") -> None:
    """Asserts the same keys, in the same order, with the same types and nulls, as deep as the document goes."""
    if isinstance(documented, dict):
        assert isinstance(given, dict), place
        assert list(given) == list(documented), place
        for key, value in documented.items():
            same_shape(given[key], value, f"{place}.{key}")
    elif isinstance(documented, list):
        assert isinstance(given, list), place
        assert bool(given) == bool(documented), place
        for one in given:
            same_shape(one, documented[0], f"{place}[]")
    else:
        assert type(given) is type(documented), place
