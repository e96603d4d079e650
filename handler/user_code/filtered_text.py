"""What a content filter judges of an answer: all that has come of each sequence, and of a recording the one text that
its pieces are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...model.events import Delta, Recording, Token

__all__ = ["JudgedPieces", "JudgedSequence"]


@dataclass(slots=True)
class JudgedSequence:
    """What has come of one sequence."""

    text: str = ""
    """Reasoning, text and calls."""
    raw: str = ""
    """The texts of its tokens."""
    begun: bytes = b""
    """What its last tokens are of a character."""
    tokens: int = 0
    ended: bool = False
    first_time: int | None = None
    """The first id of tokens that are points in time, whose texts are not shown (Recording.first_time)."""

    def shown(self, tokens: Sequence[Token]) -> str:
        """Their text, without points in time."""
        first = self.first_time
        return "".join(token.text for token in tokens if first is None or token.id < first)

    def take(self, token: Token) -> None:
        """Adds to what is known of its tokens."""
        self.raw += self.shown((token,))
        if token.text or token.special:
            self.begun = b""
        else:
            self.begun += token.raw


@dataclass(slots=True)
class JudgedPieces:
    """A recording's, which are one text: each is judged after what stands before it, in their order."""

    recording: Recording
    current: int = 0
    before: str = ""
    """What has been accepted of those before."""
    waiting: dict[int, list[Delta]] = field(default_factory=dict[int, list[Delta]])

    def begun(self, delta: Delta) -> JudgedSequence:
        """What the current one begins with, whose first `delta` it is."""
        blank = " " if self.before and self.recording.spaced and not delta.text[:1].isspace() else ""
        before = self.before + blank
        return JudgedSequence(text=before, raw=before, first_time=self.recording.first_time)

    def next(self, ended: JudgedSequence) -> None:
        """The current one has ended."""
        self.before, self.current = ended.text.rstrip(), self.current + 1
