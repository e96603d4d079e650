"""A conversation's messages as mistral-common takes them, of which vLLM's server does the first line alone.

    messages in OpenAI's form --fitted--> the same, where

    ids of calls       have nine letters and digits, and are one call's in its turn: clients have ids of any form
    reasoning          is left out, where the tokenizer has no tokens for it
    text before calls  is left out, where a message has either (before version 7, as these models' templates do)
    empty answers      are left out: they say nothing, and no version takes one
    names of results   are left out: they may be no names of functions, and from version 3 on no prompt has them

Ids depend on nothing but what comes before, so that prompts of one conversation begin alike and are cached.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from ...errors import Fault, ParameterError

__all__ = ["fitted"]

Message = dict[str, Any]

LENGTH = 9
"""Characters of an id (mistral-common, protocol/instruct/validator.py)."""
MESSAGES = "prompt.messages"


def fitted(messages: Iterable[Message], *, version: int, thinks: bool) -> list[Message]:
    """The messages for a tokenizer of a version, and whether it has tokens around reasoning; none of them is changed.

    Raises ParameterError for a result without a call, where mistral-common would refuse it (from version 11 on).
    """
    made: list[Message] = []
    ids = _Ids()
    called, answered = Counter[str](), Counter[str]()
    before = ""
    *_, last = messages = list(messages)
    for message in messages:
        role = message["role"]
        if role == "assistant":
            said = _said(message, both=version >= 7, thinks=thinks)
            if not said and message is not last:
                continue
            if before != "assistant":
                called, answered = Counter[str](), Counter[str]()
            if calls := said.get("tool_calls"):
                said["tool_calls"] = [{**call, "id": ids.next(call.get("id"), called)} for call in calls]
            message = {**said, "role": role}
        elif role == "tool":
            given = message.get("tool_call_id") or ""
            message = {key: value for key, value in message.items() if key != "name"}
            if answered[given] == called[given]:
                if version >= 11:
                    expected = "expected one result for each call of the answer before, with the call's id"
                    raise ParameterError.because(Fault(MESSAGES, f"{expected}, got another for {given!r}"))
                # The last call's once more, if there is one.
                answered[given] = max(0, answered[given] - 1)
            message["tool_call_id"] = ids.next(given, answered)
        before = role
        made.append(message)
    return made


def _said(message: Message, *, both: bool, thinks: bool) -> Message:
    """What of an assistant's message may stand, without its role; nothing where that is empty."""
    said = {key: value for key, value in message.items() if key != "role" and value}
    if not thinks:
        said.pop("reasoning", None)
        said.pop("reasoning_content", None)
    if not both and "tool_calls" in said:
        said.pop("content", None)
    return said


class _Ids:
    """Ids for the calls of one conversation, and for their results."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], str] = {}
        self._taken: set[str] = set()

    def next(self, given: str | None, counted: Counter[str]) -> str:
        """For a call, or a result, of the id `given`; `counted` are those of its turn so far, by their ids.

        The first of an id is that of the same id in every other turn.
        """
        given = given or ""
        key = given, counted[given]
        counted[given] += 1
        if key not in self._made:
            self._made[key] = made = next(one for one in _candidates(*key) if one not in self._taken)
            self._taken.add(made)
        return self._made[key]


def _candidates(given: str, nth: int) -> Iterator[str]:
    # What vLLM's server makes of it (tokenizers/mistral.py, truncate_tool_call_ids).
    end = given[-LENGTH:]
    if nth == 0 and len(end) == LENGTH and end.isascii() and end.isalnum():
        yield end
    for attempt in count():
        yield hashlib.sha256(f"{nth} {attempt} {given}".encode("utf-8", "surrogatepass")).hexdigest()[:LENGTH]
