"""Threads for code of the user's: however slow it is, the engine's thread and the host's go on.

    submit(work) --> an idle thread, or a new one while there are fewer than `most`, or the queue

Threads are started as they are needed, are kept, and do not keep the process alive.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

from ..model.logs import current

__all__ = ["Workers"]

log = logging.getLogger(__name__)

T = TypeVar("T")


class Workers:
    """A bounded pool of daemon threads, and one event loop for what of the user's is asynchronous."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queue: deque[Callable[[], object]] = deque()
        self._wake = threading.Condition()
        self._threads = 0
        self._waiting = 0
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, work: Callable[[], object]) -> None:
        """Runs `work` on a thread, in its turn; what it raises is logged. Never waits."""
        with self._wake:
            self._queue.append(work)
            # Those that wait may have been woken for what stood in the queue before.
            if self._waiting >= len(self._queue):
                self._wake.notify()
            elif self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._run, name="lmi-user-code", daemon=True).start()

    def call(self, work: Callable[[], T]) -> Future[T]:
        """As `submit`, for those who want to know what came of it."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                future.set_exception(error)

        self.submit(run)
        return future

    def resolve(self, awaitable: Awaitable[T]) -> T:
        """What `awaitable` gives, awaited on the loop that all asynchronous code of the user's shares.

        Waits for it: to be called on one of these threads.
        """

        async def run() -> T:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(run(), self._running_loop()).result()

    def close(self) -> None:
        """Lets the threads end when they have done what is queued."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._wake:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_serve, args=(self._loop,), name="lmi-user-loop", daemon=True).start()
            return self._loop

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except BaseException:
                log.exception("request %s: code of the user's failed where nobody expected it", current())
            # Nothing of this work is to be kept alive by a thread that waits.
            del work

    def _next(self) -> Callable[[], object] | None:
        with self._wake:
            while not self._queue:
                if self._closed:
                    return None
                self._waiting += 1
                self._wake.wait()
                self._waiting -= 1
            return self._queue.popleft()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()
