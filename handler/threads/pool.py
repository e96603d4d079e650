"""Threads for user code; what of it is asynchronous runs on one event loop (user_loop.py).

    submit(task) --> a thread;   run(name, function) --> what the user's function gives
                                  |
                                  +--sweep: it takes too long--> task.fail(UserCodeError); another thread may be started
                                  +--drop: nobody waits for it--> the work ends with the function

However slow such code is, the engine's threads and the host's go on. Threads are started as they are needed and are
kept. One that hangs cannot be ended: it is abandoned, and what it returns, if it ever does, is dropped. An
executor of concurrent.futures has no place for that, and waits for such threads when the process is to end; these are
daemons.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ...model.errors import LmiError, UserCodeError
from ...model.log import current
from .user_loop import UserLoop

__all__ = ["Abandoned", "Task", "Workers"]

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_STUCK = 64
"""How many threads that hang are replaced by others."""


class Abandoned(BaseException):
    """Ends the work on an abandoned thread, whose result nobody waits for. Must not be caught on the way."""


@dataclass(slots=True, eq=False)
class Task:
    """Work for a thread."""

    work: Callable[[], object]
    fail: Callable[[LmiError], None]
    """Takes the error instead of what the work would have come to; the work goes no further. On any thread."""
    name: str = ""
    """Of the user's function that runs."""
    deadline: float = 0.0
    awaited: Future[Any] | None = None
    """What that function gave to be awaited."""
    dropped: bool = False
    """Whether nobody waits for what comes of it: it has not taken too long, but it goes no further."""

    def end(self) -> None:
        """Forgets what it was for: whoever asked for it refers to it, a cycle that only a search for garbage frees."""
        self.work = self.fail = _nothing


class Workers:
    """A bounded pool of daemon threads."""

    def __init__(self, max_threads: int, timeout: float = 60.0, name: str = "lmi-user-code") -> None:
        """`max_threads`: threads that do not hang; `timeout`: seconds that a user function may take; `name`: theirs."""
        self._size = max_threads
        self._timeout = timeout
        self._name = name
        self._wake = threading.Condition()
        self._queue: deque[Task] = deque()
        self._threads = 0
        """Those that hang are among them."""
        self._idle = 0
        self._stuck = 0
        self._closed = False
        self._running: dict[Task, None] = {}
        """Those within a user function, oldest first, which is the next to take too long."""
        self._current = threading.local()
        self._loop = UserLoop()

    @property
    def stuck(self) -> int:
        """How many threads hang."""
        return self._stuck

    def submit(self, task: Task) -> None:
        """Queues it for a thread; what it raises is logged. Never waits."""
        with self._wake:
            self._queue.append(task)
            # Those that wait may have been woken for what stood in the queue before.
            if self._idle >= len(self._queue):
                self._wake.notify()
            else:
                self._add_thread()
            left = self._take_hopeless()
        self._refuse(left)

    def call(self, work: Callable[[], T]) -> Future[T]:
        """As `submit`, for those who want to know what came of it."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except Abandoned:
                raise
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                future.set_exception(error)

        def fail(error: LmiError) -> None:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)

        self.submit(Task(run, fail))
        return future

    def run(self, name: str, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """What a user function returns; of a coroutine function, what that comes to.

        Raises Abandoned where it has taken too long, or nobody waits for it any more.
        On a thread that is none of these it may take any time.
        """
        task = self._task
        if task is not None and task.dropped:
            raise Abandoned
        return self._run(name, partial(function, *arguments, **named))

    def finish(self, name: str, function: Callable[[], Any]) -> Any:
        """As `run`, for what ends something of the user's: also where nobody waits for its task any more."""
        return self._run(name, function, finishes=True)

    @property
    def _task(self) -> Task | None:
        """What this thread works on, if it is one of these."""
        return getattr(self._current, "task", None)

    def _run(self, name: str, function: Callable[[], Any], *, finishes: bool = False) -> Any:
        task = self._task
        if task is None or task.name:
            result = function()
            return self._loop.start(result).result() if inspect.isawaitable(result) else result
        with self._wake:
            task.name, task.deadline = name, time.monotonic() + self._timeout
            self._running[task] = None
        try:
            result = function()
            if not inspect.isawaitable(result):
                return result
            task.awaited = self._loop.start(result)
            if task not in self._running:
                task.awaited.cancel()
                self._loop.replace_if_blocked()
            elif task.dropped and not finishes:
                self._loop.cancel(task.awaited)
            return task.awaited.result()
        finally:
            self._exit_function(task)

    def sweep(self, now: float) -> float:
        """Abandons functions that have taken too long by `now` (time.monotonic). Returns when to check again."""
        while True:
            with self._wake:
                task = next(iter(self._running), None)
                if task is None or task.deadline > now:
                    return now + self._timeout if task is None else task.deadline
                message = f"{task.name} has not returned within {self._timeout:g} seconds (option.user_code_timeout)"
                report = self._abandon(task, UserCodeError(message))
            report()

    def drop(self, task: Task) -> bool:
        """Lets the task run no further user function than the one that it is within; False if it is within none.

        Never waits. The function has its time nevertheless, and what it awaits is cancelled.
        """
        with self._wake:
            task.dropped = True
            within = task in self._running
            awaited = task.awaited
        if awaited is not None:
            self._loop.cancel(awaited)
        return within

    def event_loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop of what is asynchronous in user code; None where none has been needed."""
        return self._loop.current

    def close(self) -> None:
        """Lets the threads end when they have done what is queued."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        self._loop.close()

    def _abandon(self, task: Task, error: LmiError) -> Callable[[], None]:
        """Counts its thread as hanging. Returns what the caller must call, without the lock."""
        del self._running[task]
        self._stuck += 1
        if self._queue:
            self._add_thread()
        log.error("%s hangs, its thread is abandoned; %d threads hang", task.name, self._stuck)
        return partial(self._fail, task, partial(task.fail, error), self._take_hopeless())

    def _fail(self, task: Task, fail: Callable[[], None], left: list[Task]) -> None:
        # Where it was dropped its request has ended, but for one that was left to its thread.
        fail()
        self._refuse(left)
        if (awaited := task.awaited) is not None:
            # Lets the thread that waits for it go on.
            awaited.cancel()
            self._loop.replace_if_blocked()

    def _exit_function(self, task: Task) -> None:
        """The function has ended; raises Abandoned if nobody has waited for that."""
        with self._wake:
            name, task.name, task.awaited = task.name, "", None
            in_time = task in self._running
            if in_time:
                del self._running[task]
            else:
                self._stuck -= 1
        if not in_time:
            log.info("%s has returned after its time limit", name)
        elif not task.dropped:
            return
        raise Abandoned

    def _refuse(self, tasks: list[Task]) -> None:
        """Ends those for which there is no thread."""
        for task in tasks:
            task.fail(UserCodeError(f"there is no thread for the request: {self._stuck} hang in user code"))
            task.end()

    @property
    def _max_threads(self) -> int:
        """How many threads there may be."""
        return self._size + min(self._stuck, MAX_STUCK)

    def _add_thread(self) -> None:
        """Starts a thread, if there may be one more."""
        if self._threads < self._max_threads:
            try:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            except RuntimeError:
                # The system has a limit of processes, or no memory.
                log.exception("no thread could be started; there are %d", self._threads)
            else:
                self._threads += 1

    def _take_hopeless(self) -> list[Task]:
        """What is queued, if every thread hangs and none could be added."""
        if self._threads > self._stuck:
            return []
        left, self._queue = list(self._queue), deque()
        return left

    def _work(self) -> None:
        while (task := self._next()) is not None:
            self._current.task = task
            try:
                task.work()
            except Abandoned:
                pass
            except BaseException:
                log.exception("request %s: work on a thread failed unexpectedly", current())
            task.end()
            # Nothing of this work is to be kept alive by a thread that waits.
            del task
            self._current.task = None

    def _next(self) -> Task | None:
        """None where the thread is to end: it has been replaced, or there is nothing more to come."""
        with self._wake:
            while self._threads <= self._max_threads:
                if self._queue:
                    return self._queue.popleft()
                if self._closed:
                    break
                self._idle += 1
                self._wake.wait()
                self._idle -= 1
            self._threads -= 1
            return None


def _nothing(*_: object) -> None:
    """Is left of work that is done."""
