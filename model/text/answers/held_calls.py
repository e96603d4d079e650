"""Calls that are held back until each is whole, read by vLLM's parsers one by one.

text, text, ... --HeldCalls.feed--> text, calls
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...events import CallDelta
from .call_ids import new_id
from .call_reader import CallForm, CallReader

__all__ = ["HeldCalls", "is_object"]

log = logging.getLogger(__name__)

MOST_BY_CHARACTERS = 512
"""Of a text with calls that are read one character at a time, which takes time by the square of its length."""


@dataclass(slots=True)
class ReadCall:
    """A call, as vLLM's FunctionCall."""

    name: str = ""
    arguments: str = ""


class HeldCalls:
    """Those of one answer."""

    def __init__(self, form: CallForm, make: Callable[[], Any], request: Any) -> None:
        """`make` makes vLLM's parser for answers with calls; `request` is the request in vLLM's form."""
        self._form = form
        self._make = make
        self._request = request
        self._reader = CallReader(form)
        self._cut = False
        """Whether the answer ended before the model ended it."""
        self._count = 0
        """How many calls there have been."""

    @property
    def begun(self) -> bool:
        """Whether a call has begun and is held back."""
        return self._reader.holds

    def passes(self, text: str) -> bool:
        """Whether new text is text as it comes: see CallReader.passes."""
        return self._reader.passes(text)

    def feed(self, text: str, *, ended: bool, cut: bool) -> tuple[str, list[CallDelta]]:
        """What new text brings: text and whole calls. With `ended` it is the last.

        cut: whether the answer ended before the model ended it.
        """
        self._cut = cut
        texts: list[str] = []
        found: list[CallDelta] = []
        for one in self._reader.feed(text, self._calls_in, ended=ended, cut=cut):
            if isinstance(one, str):
                texts.append(one)
                continue
            for call in one:
                call_id = getattr(call, "id", None) or new_id()
                found.append(CallDelta(self._count, call_id, call.name, call.arguments))
                self._count += 1
        return "".join(texts), found

    def _calls_in(self, text: str) -> tuple[str, Sequence[Any]]:
        """What of a text with calls is text, and the calls; none where one has no name."""
        ways: list[Callable[[Any, str], tuple[str, Sequence[Any]]]] = [self._as_whole]
        if self._form.stream:
            ways.insert(self._form.stream == "then", partial(self._as_a_stream, len(text)))
            if len(text) <= MOST_BY_CHARACTERS:
                ways.append(partial(self._as_a_stream, 1))
        for way in ways:
            try:
                content, calls = way(self._make(), text)
            except Exception:
                log.debug("a tool call parser failed: it is treated as text", exc_info=True)
                continue
            if calls and all(call.name and not any(map(str.isspace, call.name)) for call in calls):
                return content, calls
        return text, ()

    def _as_whole(self, parser: Any, text: str) -> tuple[str, Sequence[Any]]:
        _, content, calls = parser.parse(text, self._request, enable_auto_tools=True)
        return content or "", calls or ()

    def _as_a_stream(self, size: int, parser: Any, text: str) -> tuple[str, Sequence[Any]]:
        """The same by the parser of streams, `size` characters at a time: it reads more, but makes things up."""
        closing = self._form.closing
        if self._cut or (closing and not text.rstrip().endswith(closing)):
            return text, ()
        content = ""
        calls: dict[int, ReadCall] = {}
        for start in range(0, len(text), size):
            piece = text[start : start + size]
            ids = parser.model_tokenizer.encode(piece, add_special_tokens=False)
            message = parser.parse_delta(piece, ids, self._request, [], finished=start + size >= len(text))
            content += (message.content or "") if message is not None else ""
            for call in (message.tool_calls or ()) if message is not None else ():
                one = calls.setdefault(call.index, ReadCall())
                one.name += (call.function.name or "") if call.function else ""
                one.arguments += (call.function.arguments or "") if call.function else ""
        # Nothing that is half made up: a call has its name, and arguments that are JSON.
        return (content, [*calls.values()]) if all(is_object(one.arguments) for one in calls.values()) else (text, ())


def is_object(text: str | None) -> bool:
    """Whether it is a JSON object."""
    try:
        return type(json.loads(text or "")) is dict
    except ValueError:
        return False
