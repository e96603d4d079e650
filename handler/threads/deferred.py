"""An exchange whose work runs on threads: user code, a large body, a session. Neither the engine's thread nor the
host's does it.

    Service.open --> waiting, at once
    a worker thread:   prepare --> ParsedRequest --> Engine.submit;   event, event --> feed --> records
    engine's thread:   event --> queue --> a worker thread, unless one works on this exchange already

The work for one request is done in order, by one thread at a time, so that a slow or failing user function
holds up or ends its own request and no other. What has come in meanwhile is fed as one event, for answers do not depend
on how tokens are split into events.

Until a request has been prepared nobody writes its answer: whatever that waits for, a lock or a disk, it can be ended.
A thread that hangs in user code is abandoned: the request is answered without it, and what it comes back with is
dropped. So is what a function comes back with whose request has ended meanwhile, and it runs no further one (pool.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from functools import partial
from typing import Literal

from ...formatters import NotReadyError, Response
from ...model.engine import Engine
from ...model.errors import GenerationError, LmiError
from ...model.events import EngineEvent, Failed, Rendered
from ...model.log import set_current
from ..admission import Admission
from ..exchange import Exchange
from ..states import OVER, State
from ..telemetry.metrics import RequestStats
from ..user_code.content_filter import FilteredEncoder
from ..user_code.custom_handler import Relayed
from ..user_code.safe_reply import end_of_stream
from .merging import merge_deltas
from .pool import Task, Workers
from .prepared import Prepared

__all__ = ["Deferred"]

log = logging.getLogger(__name__)


class Deferred(Exchange):
    """Runs a call that has yet to be found."""

    __slots__ = (
        "_error",
        "_events",
        "_filtered",
        "_on_threads",
        "_prepare",
        "_refuse",
        "_task",
        "_workers",
        "_writer",
    )

    def __init__(
        self,
        prepare: Callable[[], Prepared | Relayed | Response],
        refuse: Callable[[LmiError], Response],
        engine: Engine,
        admission: Admission,
        workers: Workers,
        *,
        meter: RequestStats,
        notify: Callable[[], None],
        request_id: str = "",
        on_news: Callable[[Exchange], None] | None = None,
    ) -> None:
        super().__init__(engine, admission, meter=meter, notify=notify, request_id=request_id, on_news=on_news)
        self._state = State.WAITING
        self._prepare: Callable[[], Prepared | Relayed | Response] | None = prepare
        """Raises NotReadyError; with anything else the request ends in an error."""
        self._refuse = refuse
        """What is answered where user code cannot be asked, for it hangs."""
        self._workers = workers
        self._task = Task(self._start, self.abandon)
        """The latest that a thread was asked for."""
        self._on_threads = False
        self._filtered: FilteredEncoder | None = None
        self._events: list[tuple[int, EngineEvent]] = []
        self._writer: Literal["none", "called", "writing"] = "none"
        """The thread that feeds the reply: there is none, it has been asked for, or it is at work."""
        self._error: LmiError | None = None
        """What the thread that writes is to end with."""

    def begin(self) -> None:
        """Asks for a thread."""
        self._workers.submit(self._task)

    def expire(self, error: LmiError) -> None:
        """Ends it with an error: now, or when our own code returns that writes the answer."""
        free = False
        with self._lock:
            if self._state in OVER:
                return
            by_engine = self._state is State.RUNNING and not self._on_threads
            if not by_engine:
                within = self._workers.drop(self._task)
                free = self._writer != "writing" or within
                self._state, self._error = State.ENDING, error
                if free:
                    self._writer = "none"
        if by_engine:
            super().expire(error)
        elif free:
            self._conclude(error)

    def abandon(self, error: LmiError) -> None:
        """The thread that was to work on it hangs in user code, or there is none."""
        with self._lock:
            if self._state is State.ENDED or (self._state is State.ENDING and self._writer == "none"):
                return
            self._state, self._writer = State.ENDING, "none"
            error = self._error or error
        self._conclude(error)

    def abort(self) -> None:
        """Ends it as nobody reads it, and its user code: what it awaits is cancelled, and it comes to nothing."""
        self._on_news = self._prepare = None
        if self._end(aborted=True):
            self._workers.drop(self._task)
            self._engine.abort(self._tickets)

    def _conclude(self, error: LmiError) -> None:
        """Ends it with an error without running user code; no other thread writes its answer."""
        if self.begun:
            self._end(self._end_of_stream(error))
        else:
            answer = self._refuse(error)
            with self._lock:
                if self._state is State.ENDING:
                    self._take_answer(answer)
        self._wake_host()
        self._engine.abort(self._tickets)

    def _end_of_stream(self, error: LmiError) -> list[bytes]:
        try:
            return end_of_stream(self.call.reply, error)
        except Exception:
            log.exception("request %s: the formatter also failed to render the error", self.request_id)
            return []

    def _wake_host(self) -> None:
        self._tell()
        self._notify()

    def _move(self, before: State, after: State) -> bool:
        """Whether it was in one state, and is in the other now."""
        with self._lock:
            if self._state is not before:
                return False
            self._state = after
            return True

    def _start(self) -> None:
        prepare = self._prepare
        if prepare is None or not self._move(State.WAITING, State.PREPARING):
            self._prepare = None
            return
        set_current(self.request_id)
        try:
            prepared = prepare()
        except NotReadyError as loading:
            if self._move(State.PREPARING, State.WAITING):
                # A future keeps its callbacks after it has called them.
                waiting = [partial(self._call_thread, self._start)]
                loading.ready.add_done_callback(lambda _: waiting.pop()())
            return
        except Exception as error:
            log.exception("request %s could not be answered", self.request_id)
            prepared = self._refuse(GenerationError(f"the request failed: {type(error).__name__}"))
        # The request is not kept for as long as its answer takes: its body may be large.
        self._prepare = None
        if isinstance(prepared, Response):
            self.answer(prepared)
            self._wake_host()
        else:
            self._run(prepared)

    def _run(self, prepared: Prepared | Relayed) -> None:
        """Makes the answer, or its beginning, unless the request has ended meanwhile."""
        on_threads = isinstance(prepared, Relayed) or prepared.on_threads
        with self._lock:
            if self._state is not State.PREPARING:
                return
            self.call, self._state = prepared.call, State.RUNNING
            if on_threads:
                self._on_threads, self._writer = True, "writing"
        if isinstance(prepared, Relayed):
            self._writing(partial(self._relay, prepared.records))
            return
        self._filtered = prepared.filtered
        if on_threads:
            self._writing(self._submit_and_feed)
            return
        self.submit()
        if self.finished:
            # There was no engine to hand it to, and no step of it will wake the host.
            self._notify()

    def _submit_and_feed(self) -> None:
        self.submit()
        self._feed_all()

    def _writing(self, write: Callable[[], None]) -> None:
        """Lets this thread write the answer. Raises Abandoned where it was to run no further user function."""
        try:
            write()
        except Exception as error:
            log.exception("request %s could not be answered", self.request_id)
            self.abandon(GenerationError(f"the request failed: {type(error).__name__}"))
        finally:
            self._settle()

    def _settle(self) -> None:
        """Ends it, if that was left to this thread."""
        if self._error is not None:
            self.abandon(self._error)

    def _relay(self, records: Generator[bytes]) -> None:
        """Sends a stream that no engine makes."""
        self._meter.streamed = self.call.streamed
        try:
            for record in records:
                if self._state is not State.RUNNING:
                    return
                if self._meter.keeps:
                    self._meter.keep([record])
                self.begun = True
                self.records.append(record)
                # In a moment such code may make any number of records.
                if len(self.records) > self._next_check and (excess := self._excess(patience=0)) is not None:
                    self._end(self._failure_records(0, excess))
                self._wake_host()
                if self.finished:
                    return
            if self._state is State.RUNNING:
                self._end()
                self._wake_host()
        finally:
            # Before the user's generator is closed, which may take its time.
            self._settle()
            records.close()

    def _feed(self, prompt: int, event: EngineEvent, noted: bool = False) -> None:
        """Takes an event, on the engine's thread."""
        if noted or not self._on_threads:
            super()._feed(prompt, event, noted)
            return
        try:
            self._meter.note(event)
        except Exception as error:
            log.exception("request %s: an event could not be taken", self.request_id)
            event = Failed.of(GenerationError(f"the request failed: {type(error).__name__}"))
        with self._lock:
            self._events.append((prompt, event))
            if self._writer != "none" or self._state is not State.RUNNING:
                return
            self._writer = "called"
        self._call_thread(self._resume)

    def _call_thread(self, work: Callable[[], None]) -> None:
        self._task = Task(work, self.abandon)
        self._workers.submit(self._task)

    def _resume(self) -> None:
        with self._lock:
            if self._state is not State.RUNNING:
                return
            self._writer = "writing"
        self._writing(self._feed_all)

    def _feed_all(self) -> None:
        """Feeds what there is, until there is nothing more."""
        set_current(self.request_id)
        while True:
            with self._lock:
                if self._state is not State.RUNNING:
                    return
                if not self._events:
                    self._writer = "none"
                    return
                events, self._events = self._events, []
            for prompt, event in merge_deltas(events):
                if self.state is State.ENDING:
                    return
                if not isinstance(event, Rendered):
                    self._feed(prompt, event, True)
                elif self._filtered is not None and (flagged := self._filtered.judge_prompt(event.text, prompt)):
                    self._feed(prompt, Failed.of(flagged), True)
                if self.finished:
                    # Of one that the reply ended by itself the engine does not know.
                    self._engine.abort(self._tickets)
                elif self._filtered is not None:
                    self._steer(self._filtered)
            self._notify()

    def _steer(self, filtered: FilteredEncoder) -> None:
        """Tells the engine what the content filter wants of it."""
        for numbers, tell in ((filtered.to_release, self._engine.release), (filtered.to_abort, self._engine.abort)):
            if numbers:
                tell([self._tickets[number] for number in numbers])
                numbers.clear()
