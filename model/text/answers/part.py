"""What some tokens of an answer bring, and what takes an answer apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from ...events import CallDelta, Token

__all__ = ["Part", "TokenSplitter"]


@dataclass(slots=True)
class Part:
    """What some tokens brought."""

    text: str = ""
    reasoning: str = ""
    calls: list[CallDelta] = field(default_factory=list[CallDelta])
    tokens: list[Token] = field(default_factory=list[Token])
    """Those that it was made of; of a call that is held back, they come with it."""


class TokenSplitter(Protocol):
    """What splits an answer as its tokens come."""

    @property
    def by_tokens(self) -> bool:
        """Whether an answer that is not streamed is fed so, too."""
        ...

    @property
    def reasoning_tokens(self) -> int:
        """How many of the tokens so far belong to the reasoning."""
        ...

    @property
    def dropped(self) -> int:
        """How many characters of the answer it has made nothing of."""
        ...

    def feed(self, tokens: Iterable[Token], *, ended: bool, cut: bool = False) -> Part:
        """Takes the next tokens; with `ended` they are the last. cut: whether the model has not ended the answer."""
        ...
