"""How often a stream's text is made and sent."""

from __future__ import annotations

__all__ = ["Pace"]


class Pace:
    """Of all streams of a kind. The engine sets it, its sequences read it."""

    __slots__ = ("gather_s", "now", "tokens")

    def __init__(self, tokens: int) -> None:
        """Every `tokens` tokens, the first one's at once."""
        self.tokens = tokens
        self.gather_s = 0.0
        """How many seconds after the last text the next one comes at the earliest (Engine.gather)."""
        self.now = 0.0
        """When the newest step's outputs came, by time.monotonic()."""
