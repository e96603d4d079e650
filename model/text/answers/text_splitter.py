"""Answers of which nothing but the text is read as they come: text with calls that are held back until each is whole,
or the JSON of a forced call.

    text, text, ... --TextSplitter.feed--> text, calls
"""

from __future__ import annotations

from collections.abc import Sequence

from ...events import Token
from .forced_calls import ForcedCalls
from .held_calls import HeldCalls
from .part import Part
from .shown_calls import ShownCalls

__all__ = ["TextSplitter"]


class TextSplitter:
    """Splits one sequence's answer."""

    reasoning_tokens = 0
    """It has no reasoning."""
    dropped = 0
    """It leaves nothing out."""

    def __init__(self, reader: HeldCalls | ForcedCalls, *, one_call: bool) -> None:
        self._reader = reader
        self._held = reader if isinstance(reader, HeldCalls) else None
        self._calls = ShownCalls(one_call=one_call)
        self._begun = False
        self._unsent: list[Token] = []
        """Tokens of calls that are held back."""

    def feed(self, tokens: Sequence[Token], *, ended: bool, cut: bool = False, text: str | None = None) -> Part:
        """Takes the next tokens, or their `text` where they are not kept; with `ended` they are the last.

        cut: whether the answer ended before the model ended it.
        """
        part = Part()
        held = self._held
        if not tokens or held is None or (ended and not self._begun):
            part.tokens += tokens
            text = "".join(token.text for token in tokens) if text is None else text
            self._take(part, text, ended=ended, cut=cut)
        else:
            for position, token in enumerate(tokens, 1):
                self._take(part, token.text, ended=ended and position == len(tokens), cut=cut)
                self._unsent.append(token)
                if not held.begun:
                    part.tokens += self._unsent
                    self._unsent = []
        self._begun = True
        if ended:
            part.tokens += self._unsent
            if not cut:
                self._calls.end(part)
        return part

    def passes(self, text: str) -> bool:
        """Whether the next text, not the last, is text as it comes. It mostly is, and is not to be fed then."""
        held = self._held
        passes = held is not None and not self._calls.empty and held.passes(text)
        self._begun = self._begun or passes
        return passes

    def _take(self, part: Part, text: str, *, ended: bool, cut: bool) -> None:
        if not ended and self.passes(text):
            part.text += text
        elif text or ended:
            self._calls.add(part, *self._reader.feed(text, ended=ended, cut=cut))
