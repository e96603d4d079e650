"""The event loop of what is asynchronous in the user's code. One that is blocked is replaced by another.

run(awaitable) --> the loop's thread;   suspect: is it blocked? --sweep--> a new loop for what comes later
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["UserLoop"]

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOP_TIMEOUT_S = 1.0
"""Seconds in which a loop that is not blocked comes round."""


class UserLoop:
    """A loop on a thread of its own, started when it is needed."""

    def __init__(self, most_stuck: int) -> None:
        """At most so many that are blocked are replaced."""
        self._most_stuck = most_stuck
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._round: threading.Event | None = None
        """Set once the loop that is suspected has come round."""
        self._until = 0.0
        self._stuck = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The one that runs now; None where none has been needed."""
        return self._loop

    def run(self, awaitable: Awaitable[T]) -> Future[T]:
        """Awaits on the loop."""

        async def wait() -> T:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(wait(), self._running())

    def suspect(self) -> None:
        """Has the next sweep look whether the loop is blocked."""
        with self._lock:
            if self._loop is not None and self._round is None:
                self._round, self._until = threading.Event(), time.monotonic() + LOOP_TIMEOUT_S
                self._loop.call_soon_threadsafe(self._round.set)

    def sweep(self, now: float) -> float:
        """Replaces a loop that is blocked; returns when to look again."""
        with self._lock:
            if self._round is None:
                return float("inf")
            if self._until > now:
                return self._until
            blocked = not self._round.is_set() and self._loop is not None
            self._round = None
            if blocked and self._stuck < self._most_stuck:
                self._stuck += 1
                log.error("the loop of the user's code is blocked and replaced; %d are", self._stuck)
                self._stop()
            return float("inf")

    def close(self) -> None:
        """Ends the loop."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_serve, args=(self._loop,), name="lmi-user-loop", daemon=True).start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.run_until_complete(_end_all())
    loop.close()


async def _end_all() -> None:
    """Ends what the loop has left."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
