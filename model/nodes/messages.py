"""What leader and followers say to each other: JSON, a line each."""

from __future__ import annotations

import msgspec

__all__ = ["PROTOCOL", "Beat", "Ended", "Go", "Hello", "Message", "Refused"]

PROTOCOL = 1
"""Raised with each change that the other side would not understand."""


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A follower's first message."""

    protocol: int
    rank: int
    facts: dict[str, str]
    """What must be the same here and there (facts.py)."""


class Go(msgspec.Struct, frozen=True, tag="go"):
    """The leader's: all hosts are there, start."""

    arguments: dict[str, str]
    """Those of the engine that the leader alone decides (facts.LEADERS), by vLLM's names."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The leader's: this one cannot join."""

    reason: str
    final: bool
    """Whether another try would be refused too."""


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """A sign of life."""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The sender's part of the engine has ended; the connection is closed next."""

    cause: str


Message = Hello | Go | Refused | Beat | Ended
