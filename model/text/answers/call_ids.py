"""Ids of calls that we make ourselves: a client gives them back with the results, and some templates show them.

random      chatcmpl-tool-0f...    as vLLM's server makes them
mistral     nine letters and digits: mistral-common takes no others
kimi_k2     functions.NAME:INDEX, counted from the conversation's first call on: what the model itself writes, and
            what it is to see of its earlier calls
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from ...conversation import Message

__all__ = ["KIMI", "MISTRAL", "CallIds", "call_ids", "calls_in", "new_id"]

CallIds = Callable[[str], str]
"""Makes the id of the next call of a function."""
KIMI, MISTRAL = "kimi_k2", "mistral"


def call_ids(family: str, before: int = 0) -> CallIds:
    """The ids of one answer's calls. `family`: as vLLM's get_tool_call_id_type has it, or MISTRAL; `before`: how many
    calls the conversation has.
    """
    if family == KIMI:
        numbers = count(before)
        return lambda name: f"functions.{name}:{next(numbers)}"
    if family == MISTRAL:
        return lambda _: uuid.uuid4().hex[:9]
    return lambda _: new_id()


def calls_in(messages: Iterable[Message | dict[str, Any]]) -> int:
    """How many calls a conversation has."""
    return sum(len(one.calls if isinstance(one, Message) else one.get("tool_calls") or ()) for one in messages)


def new_id() -> str:
    """An id that no other call has."""
    return f"chatcmpl-tool-{uuid.uuid4().hex}"
