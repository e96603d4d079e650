"""The event loop of what is asynchronous in user code, on a thread of its own. One that is blocked is replaced.

start(awaitable) --> Future
replace_if_blocked --a callback does not run--> the next awaitable begins another loop
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["UserLoop"]

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_BLOCKED = 64
"""How many loops that are blocked are replaced by others."""
CALLBACK_TIMEOUT_S = 1.0
"""Seconds in which a loop that is not blocked runs a callback."""


class UserLoop:
    """Started when it is first needed. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._blocked = 0

    @property
    def current(self) -> asyncio.AbstractEventLoop | None:
        """None where none has been needed."""
        return self._loop

    def start(self, awaitable: Awaitable[T]) -> Future[T]:
        """Awaits on the loop."""

        async def wait() -> T:
            return await awaitable

        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(self._loop,), name="lmi-user-loop", daemon=True).start()
            return asyncio.run_coroutine_threadsafe(wait(), self._loop)

    def cancel(self, awaited: Future[Any]) -> None:
        """Cancels what is awaited, unless the loop is blocked: then its time limit finds that out. Never waits."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(awaited.cancel)

    def replace_if_blocked(self) -> None:
        """Lets later code run on a new loop, if this one is blocked; waits for CALLBACK_TIMEOUT_S at most."""
        responded = threading.Event()
        with self._lock:
            loop = self._loop
            if loop is None or self._blocked >= MAX_BLOCKED:
                return
            loop.call_soon_threadsafe(responded.set)
        if responded.wait(CALLBACK_TIMEOUT_S):
            return
        with self._lock:
            if self._loop is loop:
                self._blocked += 1
                log.error("the event loop of user code is blocked and was replaced; %d are blocked", self._blocked)
                self._drop()

    def close(self) -> None:
        """Ends the loop, and what runs on it."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.run_until_complete(_cancel_all())
    loop.close()


async def _cancel_all() -> None:
    """Ends what the loop has left."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
