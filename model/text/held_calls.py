"""Calls that a stream holds back until the answer has ended, where vLLM's parser of streams reads them wrong.

    text, text, ... --HeldCalls.feed--> what stands before the first mark
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["HELD", "HeldCalls"]

HELD: Mapping[str, tuple[str, ...]] = {}
"""By vLLM's name of a tool parser, what its calls begin with: those whose streams are read wrong (tests/families)."""


class HeldCalls:
    """Finds where the first call of an answer begins."""

    def __init__(self, marks: Sequence[str]) -> None:
        """`marks`: what a call begins with, any of these."""
        self._marks = marks
        self.begun = False
        """Whether a call has begun: nothing is passed on any more."""
        self._rest = ""
        """What may be the beginning of a mark."""

    def feed(self, text: str) -> str:
        """What of the text so far stands before the first call, and has not been given before."""
        text = self._rest + text
        found = [at for mark in self._marks if (at := text.find(mark)) >= 0]
        if found:
            self.begun, self._rest = True, ""
            return text[: min(found)]
        most = max(map(len, self._marks)) - 1
        kept = next(
            (size for size in range(min(most, len(text)), 0, -1) if any(m.startswith(text[-size:]) for m in self._marks)),
            0,
        )
        self._rest = text[len(text) - kept :]
        return text[: len(text) - kept]

    def end(self) -> str:
        """What was kept, and is no call."""
        rest, self._rest = self._rest, ""
        return rest
