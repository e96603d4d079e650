"""An exchange that runs user code, or has a large body to read: neither the engine's thread nor the host's does it.

    Service.open --> Deferred, at once
    a worker thread:   prepare --> ParsedRequest --> Engine.submit;   event, event --> feed --> records
    engine's thread:   event --> queue --> a worker thread, unless one works on this exchange already

The work for one request is done in order, by one thread at a time, so that a slow or failing user function
holds up or ends its own request and no other. What has come in meanwhile is fed as one event, for answers do not depend
on how tokens are split into events.

A thread that hangs in user code is abandoned: the request is answered without it, and what it comes back with is
dropped. So is what a function comes back with whose request has been cancelled meanwhile (pool.py). And until a request
has been prepared nothing is known of its answer: whatever that waits for, a lock or a disk, the request can be ended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from ...formatters import NotReadyError, ParsedRequest, Response
from ...model.engine import Engine
from ...model.errors import GenerationError, LmiError
from ...model.events import Delta, EngineEvent, Failed, Rendered
from ...model.log import set_current
from ..admission import Admission
from ..exchange import Exchange, FixedResponse
from ..telemetry.metrics import RequestStats
from ..user_code.content_filter import FilteredEncoder
from ..user_code.custom_handler import Relayed
from ..user_code.safe_reply import end_of_stream
from .pool import Task, Workers

__all__ = ["Deferred", "Prepared"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that has been parsed."""

    call: ParsedRequest
    runs_user_code: bool = True
    """Whether the reply runs user code; else it is fed on the engine's thread, as any other."""
    filtered: FilteredEncoder | None = None
    """The content filter's part of the reply."""


class Deferred(Exchange):
    """Runs a call that has yet to be found. Its `call` is final before the first record is there."""

    __slots__ = (
        "_busy",
        "_events",
        "_filtered",
        "_lock",
        "_notify",
        "_owned",
        "_prepare",
        "_refuse",
        "_runs_user_code",
        "_task",
        "_workers",
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
        request_id: str = "",
        on_news: Callable[[Exchange], None] | None = None,
        notify: Callable[[], None],
    ) -> None:
        super().__init__(
            ParsedRequest((), FixedResponse()), engine, admission, meter=meter, request_id=request_id, on_news=on_news
        )
        self._prepare = prepare
        """Raises NotReadyError; with anything else the request ends in an error."""
        self._refuse = refuse
        """What is answered where user code cannot be asked, for it hangs."""
        self._workers = workers
        self._notify = notify
        """Wakes the hosts: they are not to wait for the engine's next step."""
        self._runs_user_code = True
        self._filtered: FilteredEncoder | None = None
        self._lock = threading.Lock()
        self._events: list[tuple[int, EngineEvent]] = []
        self._busy = False
        """Whether a thread works on this exchange, or is about to."""
        self._owned = False
        """Whether it is working on the answer. An abandoned one counts for ever, so that no other begins."""

    def begin(self) -> None:
        """Sets a worker thread to it."""
        self._busy = True
        self._submit(self._start)

    def expire(self, error: LmiError) -> None:
        """Ends it with an error, now or when our own code that works on the answer returns; all else runs on alone."""
        with self._lock:
            if self.finished:
                return
            self._expired = error
            free = not self._owned
            self._owned = True
        if self._workers.drop(self._task) or free:
            self._end_with_error(error)

    def abandon(self, error: LmiError) -> None:
        """The thread that was to work on it hangs in user code, or there is none."""
        with self._lock:
            if self.finished:
                return
            self._owned = True
        self._end_with_error(error)

    def _acquire(self) -> bool:
        """Whether there is something to do for the thread that has come."""
        with self._lock:
            if self._owned or self.finished:
                return False
            self._owned = True
            return True

    def _start(self) -> None:
        if self._owned or self._has_ended():
            return
        set_current(self.request_id)
        try:
            prepared = self._prepare()
        except NotReadyError as loading:
            loading.ready.add_done_callback(lambda _: self._submit(self._start))
            return
        except Exception as error:
            log.exception("request %s could not be answered", self.request_id)
            prepared = self._refuse(GenerationError(f"the request failed: {type(error).__name__}"))
        if not self._acquire():
            return
        # The request is not kept for as long as its answer takes: its body may be large.
        del self._prepare
        if isinstance(prepared, Relayed):
            try:
                for _ in self.relay(prepared.call, prepared.records):
                    self._wake_host()
            except Exception as error:
                log.exception("request %s could not be answered", self.request_id)
                if not self.finished:
                    self._end_with_error(GenerationError(f"the request failed: {type(error).__name__}"))
            return
        if isinstance(prepared, Response):
            self._respond(prepared)
            return
        self.call, self._runs_user_code, self._filtered = prepared.call, prepared.runs_user_code, prepared.filtered
        try:
            super().begin()
        except Exception as error:
            log.exception("request %s could not be submitted to the engine", self.request_id)
            self.fail(GenerationError(f"the request could not be submitted to the engine: {type(error).__name__}"))
        if self._has_ended():
            # There was no engine to hand it to, and no step of it will wake the host.
            self._notify()
        self._work()

    def _respond(self, answer: Response) -> None:
        """Takes a whole answer for the request's."""
        reply = FixedResponse(
            status=answer.status,
            content_type=answer.content_type,
            headers=answer.headers,
            failure=answer.failure,
            finished=True,
        )
        self.call = ParsedRequest((), reply, answer.dialect)
        records = [answer.body] if answer.body else []
        if records and self._meter.keeps:
            self._meter.keep(records)
        self._end(records)
        self._wake_host()

    def _end_with_error(self, error: LmiError) -> None:
        """Ends it without running user code; no other thread works on it."""
        if not self._runs_user_code:
            self._engine.fail(self._tickets, error)
            return
        if self.begun:
            self._end_stream(error)
            self._end()
            self._wake_host()
        else:
            self._respond(self._refuse(error))
        self._engine.abort(self._tickets)

    def _end_stream(self, error: LmiError) -> None:
        try:
            self.records.extend(end_of_stream(self.call.reply, error))
        except Exception:
            log.exception("request %s: the formatter also failed to render the error", self.request_id)

    def _wake_host(self) -> None:
        if self._on_news is not None:
            self._on_news(self)
        self._notify()

    def _feed(self, prompt: int, event: EngineEvent, noted: bool = False) -> None:
        """Takes an event, on the engine's thread."""
        if noted or not self._runs_user_code:
            super()._feed(prompt, event, noted)
            return
        try:
            self._meter.note(event)
        except Exception as error:
            log.exception("request %s: an event could not be taken", self.request_id)
            event = Failed.of(GenerationError(f"the request failed: {type(error).__name__}"))
        with self._lock:
            self._events.append((prompt, event))
            if self._busy:
                return
            self._busy = True
        self._submit(self._resume)

    def _submit(self, work: Callable[[], None]) -> None:
        self._task = Task(work, self.abandon)
        self._workers.submit(self._task)

    def _resume(self) -> None:
        if self._acquire():
            self._work()

    def _has_ended(self) -> bool:
        """Whether it has ended, or another thread has aborted it."""
        return self.finished

    def _work(self) -> None:
        """Feeds what there is, until there is nothing more."""
        set_current(self.request_id)
        while True:
            with self._lock:
                expired = None if self.finished else self._expired
                if expired is None and (not self._events or self.finished):
                    self._busy = self._owned = False
                    return
                events, self._events = self._events, []
            if expired is not None:
                self._end_with_error(expired)
                return
            for prompt, event in merge_deltas(events):
                if not isinstance(event, Rendered):
                    self._feed(prompt, event, True)
                elif self._filtered is not None and (flagged := self._filtered.judge_prompt(event.text, prompt)):
                    self._feed(prompt, Failed.of(flagged), True)
                if self._has_ended():
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


def merge_deltas(events: list[tuple[int, EngineEvent]]) -> list[tuple[int, EngineEvent]]:
    """The same with neighbouring deltas of one sequence as one, where that does not change the order of its parts."""
    result: list[tuple[int, EngineEvent]] = []
    for prompt, event in events:
        if result and isinstance(event, Delta):
            before_prompt, before = result[-1]
            if before_prompt == prompt and isinstance(before, Delta) and _can_merge(before, event):
                result[-1] = (prompt, _merge(before, event))
                continue
        result.append((prompt, event))
    return result


def _can_merge(first: Delta, second: Delta) -> bool:
    """Whether both can be one: a delta's reasoning comes before its text, and that before its calls."""
    if first.index != second.index or first.finish is not None:
        return False
    return not (second.reasoning and (first.text or first.calls)) and not (second.text and first.calls)


def _merge(first: Delta, second: Delta) -> Delta:
    return msgspec.structs.replace(
        second,
        text=first.text + second.text,
        tokens=first.tokens + second.tokens,
        reasoning=first.reasoning + second.reasoning,
        calls=first.calls + second.calls,
    )
