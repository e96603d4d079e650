"""Answers fed by hand and put together, for the tests of all dialects."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lmi.formatters.base import Reply
from lmi.model.events import Event, Finish, FinishReason

__all__ = ["JoinedCall", "end", "feed", "feed_prompts", "join_calls", "same_shape"]


def feed(reply: Reply, *events: Event) -> list[bytes]:
    """The records of a reply to one prompt. None of them is empty, and no event comes after the last."""
    return feed_prompts(reply, *((0, event) for event in events))


def feed_prompts(reply: Reply, *events: tuple[int, Event]) -> list[bytes]:
    """The same for several prompts: each event with its prompt's number."""
    records: list[bytes] = []
    for prompt, event in events:
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
    """The calls that deltas (index, id, name, arguments) make up. Their indexes count from 0 in the order they begin."""
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
