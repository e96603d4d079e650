"""Stop strings where a sequence has many continuations at once: a beam's text, one token further.

Detokenizer (text/detokenizer.py) goes one way only. Here the state of a prefix is a value, so that several can go on
from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..generation import Sampling
from ..text.tokenizer import WINDOW, Tokenizer
from .beam import Prefix

__all__ = ["Stops"]


class _State(NamedTuple):
    tail: str = ""
    """The end of the text, as much as may be the beginning of a stop string."""
    decoded: int = 0
    """How many tokens the text has in full; those after them are parts of a character, or have no text."""


class Stops:
    """Finds the stop strings of one request: the same as Detokenizer finds, at the same token."""

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int], sampling: Sampling) -> None:
        self._tokenizer = tokenizer
        self._prompt = tuple(prompt_ids[-WINDOW:])
        self._sampling = sampling
        self._longest = max(map(len, sampling.stop), default=0)

    def follow(self, prefix: Prefix, token: int) -> tuple[_State | None, bool]:
        """The state with `token` more, and whether it completes a stop string (Follow in beam.py)."""
        sampling = self._sampling
        if not sampling.stop:
            return None, False
        tail, decoded = prefix.state or _State()
        known = (*self._prompt, *prefix.tokens[:decoded])[-WINDOW:]
        decode = self._tokenizer.stream(known, sampling.skip_special_tokens, sampling.spaces_between_special_tokens)
        for pending in prefix.tokens[decoded:]:
            decode(pending)
        piece = decode(token)
        length = len(prefix.tokens) + 1
        text = tail + piece
        stopped = length > sampling.min_tokens and any(
            text.find(stop, max(0, len(tail) - len(stop) + 1)) >= 0 for stop in sampling.stop
        )
        tail = text[-(self._longest - 1) :] if self._longest > 1 else ""
        return _State(tail, length if piece else decoded), stopped
