"""The answers of a recording's pieces, which come all at once, as one text.

(piece 1, "b"), (piece 0, "a"), (piece 0, its end)  --Joined.take-->  "", "a", " b"
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Joined"]


@dataclass(slots=True)
class Joined:
    """A text in the making: what is to be sent next is in the order of the pieces."""

    current: int = 0
    """The piece of which text is sent as it comes."""
    begun: bool = False
    """Whether any text has been sent."""
    begun_piece: bool = False
    """Whether any of the current piece has."""
    blanks: str = ""
    """What has come of the current piece since: they are sent where a word follows them."""
    waiting: dict[int, list[str]] = field(default_factory=dict)
    """What has come of later pieces."""
    ended: set[int] = field(default_factory=set)

    def take(self, piece: int, text: str, *, ended: bool, spaced: bool) -> str:
        """Takes what is new of a piece; gives what of the whole text is to be sent now. `spaced`: a blank stands
        between two pieces."""
        if ended:
            self.ended.add(piece)
        if piece != self.current:
            self.waiting.setdefault(piece, []).append(text)
            return ""
        ready = [self._words(text, spaced)]
        while self.current in self.ended:
            self.current += 1
            self.begun_piece, self.blanks = False, ""
            ready += [self._words(one, spaced) for one in self.waiting.pop(self.current, ())]
        return "".join(ready)

    def _words(self, text: str, spaced: bool) -> str:
        """Text of the current piece, without the blanks that it begins with (Whisper's do), and those that it ends with
        (vLLM's classes take them away where they clean texts at all)."""
        text = self.blanks + text
        if not self.begun_piece:
            text = text.lstrip()
        words = text.rstrip()
        self.blanks = text[len(words) :]
        if not words:
            return ""
        before = " " if self.begun and not self.begun_piece and spaced else ""
        self.begun = self.begun_piece = True
        return before + words
