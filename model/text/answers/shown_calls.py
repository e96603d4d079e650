"""The calls of an answer as clients get them: one where one is allowed, and arguments that are JSON."""

from __future__ import annotations

from collections.abc import Iterable

from ...events import CallDelta
from .part import Part

__all__ = ["ShownCalls"]


class ShownCalls:
    """Those of one answer."""

    __slots__ = ("_last", "_one_call", "empty")

    def __init__(self, *, one_call: bool) -> None:
        self._one_call = one_call
        self._last = -1
        """The last call that has begun."""
        self.empty = False
        """Whether that has no arguments yet."""

    def add(self, part: Part, text: str, calls: Iterable[CallDelta]) -> None:
        """Adds to `part` text, and the calls that come behind it."""
        if text:
            if self.empty and not text.isspace():
                self.end(part)
            part.text += text
        for call in calls:
            if self._one_call and call.index > 0:
                continue
            if call.index != self._last:
                self.end(part)
                self._last, self.empty = call.index, True
            self.empty = self.empty and not call.arguments
            part.calls.append(call)

    def end(self, part: Part) -> None:
        """Ends the last call: without arguments these are the empty object."""
        if self.empty:
            self.empty = False
            part.calls.append(CallDelta(self._last, arguments="{}"))
