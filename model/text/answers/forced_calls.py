"""Calls that a request forces, read from the JSON that guided decoding lays down.

    text, text, ... --ForcedCalls.feed--> text, calls

The answer for a named function is its arguments; that for `required` is a list of calls:
[{"name": ..., "parameters": {...}}, ...]. vLLM 0.32 has Mistral's write such lists for either, with "arguments".
Arguments are passed on as they come, exactly as they were written.
vLLM's own reader of streams counts the braces within strings, too (tool_parsers/streaming.py, filter_delta_text).
"""

from __future__ import annotations

import json
import re

from msgspec.structs import replace

from ...events import CallDelta
from .call_ids import CallIds

__all__ = ["ForcedCalls", "JsonValue"]

ARGUMENTS = ("parameters", "arguments")
BLANK = " \t\n\r"
VALUE = re.compile(r'["{\[\-0-9tfn]')
"""What a JSON value begins with."""
STRING = re.compile(r'"(?:[^"\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"')
BRACKET = re.compile(r'["{\[\]}]')
STRING_MARK = re.compile(r'["\\]')
SCALAR_END = re.compile(r"[,\]} \t\n\r]")

NEXT = {
    ("list", "["): "call", ("call", ","): "call", ("call", "{"): "key", ("call", "]"): "end",
    ("key", ","): "key", ("key", "}"): "call", ("key", '"'): "colon", ("colon", ":"): "value",
}  # fmt: skip
"""What is expected after a character, by what was expected there."""


class JsonValue:
    """Finds where a JSON value ends that comes in pieces."""

    __slots__ = ("_depth", "_escaped", "_quoted", "_scalar", "begun", "ended")

    def __init__(self) -> None:
        self._depth = 0
        self._escaped = self._quoted = self._scalar = False
        self.begun = self.ended = False

    def end(self, text: str, place: int) -> int:
        """Where in `text` the value ends, or the text does; `place`, within the text, is where it begins or goes on."""
        if not self.begun:
            self.begun = True
            self._scalar = text[place] not in '"{['
        if self._scalar:
            found = SCALAR_END.search(text, place)
            self.ended = found is not None
            return len(text) if found is None else found.start()
        while place < len(text):
            if self._escaped:
                self._escaped = False
                place += 1
                continue
            found = (STRING_MARK if self._quoted else BRACKET).search(text, place)
            if found is None:
                return len(text)
            place = found.end()
            mark = found.group()
            if mark == "\\":
                self._escaped = True
                continue
            if mark == '"':
                self._quoted = not self._quoted
            else:
                self._depth += 1 if mark in "{[" else -1
            if self._depth == 0 and not self._quoted:
                self.ended = True
                return place
        return place


class ForcedCalls:
    """Reads one answer."""

    def __init__(self, function: str | None, ids: CallIds) -> None:
        """`function` is the name that is forced, None for `required`; `ids` makes those of the calls."""
        self._function = function
        self._ids = ids
        self._expected = "list" if function is None else "value"
        self._rest = ""
        """What cannot be read before more comes."""
        self._unread: list[str] | None = []
        """All of the answer, until it has a call."""
        self._index = -1 if function is None else 0
        self._key = "parameters"
        self._value = JsonValue()
        self._name = ""
        """The name so far, as JSON."""
        self._named = False
        """Whether the call has been passed on."""
        self._early = ""
        """Arguments that come before the name."""

    def feed(self, text: str, *, ended: bool, cut: bool = False) -> tuple[str, list[CallDelta]]:
        """What new text brings: text that belongs to no call, and calls. With `ended` it is the last; that it is `cut`
        makes no difference.

        An answer that is no such JSON, or ends before a call has its name, stays text.
        """
        del cut
        calls: list[CallDelta] = []
        if self._unread is not None:
            self._unread.append(text)
        text, place = self._rest + text, 0
        while self._expected != "text" and place < len(text):
            after = self._step(text, place, calls)
            if after is None:
                break
            place = after
        self._rest = text[place:]
        if self._unread is not None and (ended or self._expected == "text"):
            left, self._unread, self._expected = "".join(self._unread), None, "text"
        elif self._expected == "text":
            left = self._rest
        else:
            return "", calls
        self._rest = ""
        return left, calls

    def _step(self, text: str, place: int, calls: list[CallDelta]) -> int | None:
        """Reads on from `place` and returns where that ended; None where more must come first."""
        if not (self._expected == "value" and self._value.begun):
            while place < len(text) and text[place] in BLANK:
                place += 1
            if place == len(text):
                return place
        if self._expected == "value":
            return self._read_value(text, place, calls)
        mark = text[place]
        end = place + 1
        if self._expected == "key" and mark == '"':
            found = STRING.match(text, place)
            if found is None:
                return None
            self._key, end = json.loads(found.group()), found.end()
        self._expected = NEXT.get((self._expected, mark), "text")
        if self._expected == "text":
            return place
        if self._expected == "value":
            self._value = JsonValue()
        elif mark == "{":
            self._index += 1
            self._name = self._early = ""
            self._named = False
        return end

    def _read_value(self, text: str, place: int, calls: list[CallDelta]) -> int:
        """Reads on in the value of `self._key`, as far as there is some, and returns where that ended."""
        if not self._value.begun and VALUE.match(text, place) is None:
            self._expected = "text"
            return place
        end = self._value.end(text, place)
        new = text[place:end]
        if self._key == "name":
            self._name += new
            if self._value.ended and STRING.fullmatch(self._name):
                self._begin(json.loads(self._name), calls)
        elif self._key in ARGUMENTS and self._named:
            self._go_on(new, calls)
        elif self._key in ARGUMENTS:
            self._early += new
            if self._function is not None:
                self._begin(self._function, calls)
        if self._value.ended:
            self._expected = "end" if self._function is not None else "key"
        return end

    def _begin(self, name: str, calls: list[CallDelta]) -> None:
        self._unread, self._named = None, True
        calls.append(CallDelta(self._index, self._ids(name), name, self._early))

    def _go_on(self, arguments: str, calls: list[CallDelta]) -> None:
        if calls and calls[-1].index == self._index:
            calls[-1] = replace(calls[-1], arguments=calls[-1].arguments + arguments)
        else:
            calls.append(CallDelta(self._index, arguments=arguments))
