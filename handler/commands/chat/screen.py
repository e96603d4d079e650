"""How answers look: on a terminal with reasoning and calls beside the text; elsewhere the answer alone, as it is.

What a model says may hold control characters, which would act on the terminal: they are shown as U+FFFD.
"""

from __future__ import annotations

import re
import sys

from ..terminal import coloured
from .client import Answer, Piece

__all__ = ["Screen", "harmless"]

_HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, those that turn the direction of text, and halves of surrogate pairs."""
STYLES = {"text": "", "reasoning": "2;3", "call": "36", "note": "2"}
"""What each kind looks like (coloured)."""
MIN_RATE_TOKENS = 2
"""Of fewer tokens nobody can say how fast they came."""


def harmless(text: str) -> str:
    """`text` as it may be written to a terminal."""
    return _HARMFUL.sub("\ufffd", text)


class Screen:
    """Shows one answer after the other."""

    def __init__(self) -> None:
        self.terminal = sys.stdout.isatty()
        """Whether a person reads it."""
        self._before: tuple[str, int] | None = None
        """The kind, and of calls the number, of what was shown last."""

    def show(self, piece: Piece) -> None:
        """What is new of an answer."""
        if piece.kind == "reasoning" and not self.terminal:
            return
        now, text = (piece.kind, piece.call), piece.text
        if now != self._before:
            # Line breaks that templates put between the parts.
            text = text.lstrip("\n") if self.terminal else text
            if not text:
                return
            self._begin(now)
        elif piece.kind == "call" and not self._called:
            # The name came before; these are the arguments.
            self._called = True
            self._write("(", "call")
        self._write(text, piece.kind)

    def end(self, answer: Answer, first: float, seconds: float) -> None:
        """The answer is whole: `first` seconds to its beginning, `seconds` from there to its end."""
        self._finish()
        if self.terminal and answer.tokens:
            rate = ""
            if answer.tokens >= MIN_RATE_TOKENS and seconds > 0:
                rate = f", then {(answer.tokens - 1) / seconds:.0f} tokens/s"
            why = {"stop": "", "tool_calls": "", "length": "; cut off: no more tokens may come"}
            ending = why.get(str(answer.finish_reason), f"; {answer.finish_reason}")
            self._write(f"[{answer.tokens} tokens, the first after {first:.2f} s{rate}{ending}]\n", "note")

    def cut(self) -> None:
        """The answer is ended where it is."""
        self._finish()

    def note(self, text: str) -> None:
        """A line beside the conversation, for a person only."""
        if self.terminal:
            self._write(f"{text}\n", "note")

    _called = False
    """Whether the arguments of the call that is shown have begun."""

    def _begin(self, now: tuple[str, int]) -> None:
        if self._before is not None:
            self._close_call()
            self._write("\n", "text")
        self._before, self._called = now, False
        if self.terminal and now[0] != "text":
            self._write({"reasoning": "(thinks) ", "call": "(calls) "}[now[0]], now[0])

    def _close_call(self) -> None:
        if self._before is not None and self._before[0] == "call":
            self._write(")" if self._called else "()", "call")

    def _finish(self) -> None:
        self._close_call()
        if self._before is not None:
            self._write("\n", "text")
        self._before = None

    def _write(self, text: str, kind: str) -> None:
        sys.stdout.write(coloured(harmless(text), STYLES[kind], sys.stdout))
        sys.stdout.flush()
