"""Threads for code of the user's: however slow it is, the engine's thread and the host's go on.

    submit(work, owner) --> an idle thread, or a new one while there are fewer than `most`, or the queue
    enter(name) --> the user's function --> leave
                        |
                        +--sweep: it takes too long--> owner.abandon(UserCodeError); another thread takes the place

Threads are started as they are needed, are kept, and do not keep the process alive. One that hangs cannot be ended: it
is left to itself, and what it comes back with, if it ever does, is dropped. At most MOST_STUCK are replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from ...model.errors import LmiError, UserCodeError
from ...model.log import current
from .event_loop import UserLoop

__all__ = ["Abandoned", "Owner", "Workers"]

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_STUCK = 64
"""How many threads that hang are replaced by others; those beyond take away from `most`."""


class Abandoned(BaseException):
    """Ends the work on a thread that has been given up: nobody waits for it. Not to be caught on the way."""


class Owner(Protocol):
    """Whoever has work done."""

    def abandon(self, error: LmiError) -> None:
        """Takes `error` for what came of the work, which goes no further."""
        ...


@dataclass(slots=True)
class _Task:
    """Work on its way."""

    run: Callable[[], object]
    owner: Owner | None


@dataclass(slots=True, eq=False)
class UserCall:
    """A function of the user's that runs."""

    name: str
    deadline: float
    owner: Owner | None
    awaited: Future[Any] | None = None
    replaced: bool = False
    """Whether its thread hangs and another one has its place."""


class _Current(threading.local):
    """What a thread is at."""

    task: _Task | None = None
    calls: list[UserCall]

    def __init__(self) -> None:
        self.calls = []


class Workers:
    """A bounded pool of daemon threads, and one event loop for what of the user's is asynchronous."""

    def __init__(self, most: int, timeout: float = 60.0) -> None:
        """`timeout`: seconds that a call may take."""
        self._most = most
        self._timeout = timeout
        self._queue: deque[_Task] = deque()
        self._wake = threading.Condition()
        self._threads = 0
        """Without those that hang and have been replaced."""
        self._waiting = 0
        self._replaced = 0
        self._hanging = 0
        """Those that have not been replaced."""
        self._closed = False
        self._loop = UserLoop(MOST_STUCK)
        self._current = _Current()
        self._calls: dict[UserCall, None] = {}
        """Oldest first, which is the next to take too long: all have the same time."""

    @property
    def stuck(self) -> int:
        """How many threads hang."""
        return self._replaced + self._hanging

    def submit(self, work: Callable[[], object], owner: Owner | None = None) -> None:
        """Runs `work` on a thread, in its turn; what it raises is logged. Never waits.

        `owner` is told where the work hangs, and where there is no thread left that could do it.
        """
        with self._wake:
            none_left = self._hanging >= self._most
            if not none_left:
                self._queue.append(_Task(work, owner))
                # Those that wait may have been woken for what stood in the queue before.
                if self._waiting >= len(self._queue):
                    self._wake.notify()
                else:
                    self._grow()
        if none_left and owner is not None:
            owner.abandon(self._no_thread())

    def call(self, work: Callable[[], T]) -> Future[T]:
        """As `submit`, for those who want to know what came of it."""
        asked = _Asked()

        def run() -> None:
            try:
                asked.future.set_result(work())
            except Abandoned:
                raise
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                asked.future.set_exception(error)

        self.submit(run, asked)
        return asked.future

    def enter(self, name: str) -> UserCall | None:
        """Notes that a function of the user's is about to run. None on a thread that is none of these."""
        current = self._current
        if current.task is None:
            return None
        call = UserCall(name, time.monotonic() + self._timeout, current.task.owner)
        current.calls.append(call)
        with self._wake:
            self._calls[call] = None
        return call

    def leave(self, call: UserCall | None) -> None:
        """Notes that it has ended; raises Abandoned if nobody has waited for that."""
        if call is None:
            return
        self._current.calls.pop()
        with self._wake:
            if call in self._calls:
                del self._calls[call]
                return
            if call.replaced:
                self._replaced -= 1
            else:
                self._hanging -= 1
        log.warning("%s has returned after all", call.name)
        raise Abandoned(call)

    def resolve(self, awaitable: Awaitable[T]) -> T:
        """What `awaitable` gives, awaited on the loop that all asynchronous code of the user's shares.

        Waits for it: to be called on one of these threads.
        """
        future = self._loop.run(awaitable)
        if self._current.calls:
            call = self._current.calls[-1]
            with self._wake:
                call.awaited = future
                given_up = call not in self._calls
            if given_up:
                self._cancel(future)
        return future.result()

    def sweep(self, now: float) -> float:
        """Gives up the calls that have taken too long by `now` (time.monotonic). Returns when to look again."""
        while True:
            with self._wake:
                call = next(iter(self._calls), None)
            if call is None or call.deadline > now:
                next_call = now + self._timeout if call is None else call.deadline
                return min(next_call, self._loop.sweep(now))
            message = f"{call.name} has not returned within {self._timeout:g} seconds (option.user_code_timeout)"
            self._give_up(call, UserCodeError(message))

    def give_up(self, owner: Owner, error: LmiError) -> bool:
        """Abandons the work of `owner` if it is with a function of the user's just now."""
        with self._wake:
            calls = [call for call in self._calls if call.owner is owner]
        given_up = [self._give_up(call, error) for call in calls]
        return any(given_up)

    def event_loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop of what is asynchronous in the user's code, if there is one."""
        return self._loop.loop

    def close(self) -> None:
        """Lets the threads end when they have done what is queued."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        self._loop.close()

    def _give_up(self, call: UserCall, error: LmiError) -> bool:
        left: list[_Task] = []
        with self._wake:
            if call not in self._calls:
                return False
            del self._calls[call]
            call.replaced = self._replaced < MOST_STUCK
            if call.replaced:
                self._replaced += 1
                self._threads -= 1
                if self._queue:
                    self._grow()
            else:
                self._hanging += 1
                if self._hanging >= self._most:
                    left = [*self._queue]
                    self._queue.clear()
        log.error("%s hangs, its thread is left to itself; %d hang", call.name, self.stuck)
        if call.awaited is not None:
            self._cancel(call.awaited)
        if call.owner is not None:
            call.owner.abandon(error)
        for task in left:
            if task.owner is not None:
                task.owner.abandon(self._no_thread())
        return True

    def _cancel(self, awaited: Future[Any]) -> None:
        """Lets the thread that waits for it go on. Whether the loop does will show."""
        awaited.cancel()
        self._loop.suspect()

    def _no_thread(self) -> UserCodeError:
        return UserCodeError(f"code of the user's is not called: {self.stuck} threads hang in it")

    def _grow(self) -> None:
        """Starts a thread, if there may be one more."""
        if self._threads < self._most:
            self._threads += 1
            threading.Thread(target=self._run, name="lmi-user-code", daemon=True).start()

    def _run(self) -> None:
        while (task := self._next()) is not None:
            self._current.task = task
            try:
                task.run()
            except Abandoned as abandoned:
                call = abandoned.args[0]
                if call.replaced:
                    return
            except BaseException:
                log.exception("request %s: code of the user's failed where nobody expected it", current())
            # Nothing of this work is to be kept alive by a thread that waits.
            del task
            self._current.task = None

    def _next(self) -> _Task | None:
        with self._wake:
            while not self._queue:
                if self._closed:
                    return None
                self._waiting += 1
                self._wake.wait()
                self._waiting -= 1
            return self._queue.popleft()


@dataclass(slots=True)
class _Asked:
    """Somebody who waits for a future."""

    future: Future[Any] = field(default_factory=Future[Any])

    def abandon(self, error: LmiError) -> None:
        with contextlib.suppress(InvalidStateError):
            self.future.set_exception(error)
