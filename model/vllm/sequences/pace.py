"""How often a stream's text is made and sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Overdue", "Pace"]


class Pace:
    """Of all streams of a kind. The engine sets it, its sequences read it."""

    __slots__ = ("gather_s", "now", "soon", "tokens")

    def __init__(self, tokens: int) -> None:
        """Every `tokens` tokens, the first one's at once."""
        self.tokens = tokens
        self.gather_s = 0.0
        """How many seconds after the last text the next one comes at the earliest (Engine.gather)."""
        self.now = 0.0
        """When the core's outputs were last taken, by time.monotonic()."""
        self.soon = 0.0
        """A quarter of a step later: text that may come by then comes now, as the next step's would be later still."""

    def step(self, now: float) -> float:
        """Notes that a step's outputs are being taken; returns the seconds since the last one's were."""
        took, self.now = now - self.now, now
        self.soon = self.now + min(took, self.gather_s) / 4
        return took


class Overdue:
    """Tells when the next step takes long: what gathers would wait for it on top of what it waits anyway.

    On the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        """`wake` is called then."""
        self._loop = loop
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._over = False

    def wait(self, seconds: float) -> None:
        """Begins to wait, anew: a step that does not come within so many seconds takes long."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._end)

    def take(self) -> bool:
        """Whether one has taken long since this was asked last."""
        over, self._over = self._over, False
        return over

    def _end(self) -> None:
        self._timer, self._over = None, True
        self._wake()
