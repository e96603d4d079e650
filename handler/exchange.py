"""One request on its way, the same on every host, from its arrival to the last record of its answer.

    ParsedRequest --submit--> Engine.submit;   event --> ResponseEncoder.feed --> records --> the host takes them

states.py has its states. The way of a token (what each hop costs: docs/performance.md, The profile):

    vLLM's core             a step's EngineCoreOutputs, msgpack over ZeroMQ
    the engine's process    Core.receive -> VllmEngine.receive -> OutputSequence.grow -> Detokenizer
                            -> Delta;  EngineLoop._read -> one Step message a step, over a socket pair
    the host                Dispatcher.step -> Exchange._feed -> ResponseEncoder.feed -> records, on a thread of the
                            engine's, with one wake-up a step; or on the local server's event loop (Engine.read_on)
    the host                RollingBatch.step, AsyncBatcher._collect or Stream.wake -> Java's socket or the client's

Where events come on another thread than records are taken on, a deque is all that the two share.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from ..formatters import ParsedRequest, Response
from ..formatters.base import encode
from ..formatters.common.encoder import FixedResponse
from ..model.engine import Engine
from ..model.errors import GenerationError, LmiError
from ..model.events import EngineEvent, Event, Failed, Started
from ..model.text.response_limit import size_of, too_long
from .admission import Admission
from .response_store import keep
from .states import BEFORE, OVER, State
from .telemetry.metrics import RequestStats
from .unsent import PATIENCE_S, Unsent

__all__ = ["Exchange"]

log = logging.getLogger(__name__)


class Exchange:
    """A request and the records of its answer."""

    __slots__ = (
        "_admission",
        "_engine",
        "_lock",
        "_meter",
        "_next_check",
        "_notify",
        "_on_news",
        "_size",
        "_state",
        "_tickets",
        "_unsent",
        "begun",
        "call",
        "finished",
        "records",
        "request_id",
    )

    def __init__(
        self,
        engine: Engine,
        admission: Admission,
        *,
        meter: RequestStats,
        notify: Callable[[], None],
        call: ParsedRequest | None = None,
        request_id: str = "",
        on_news: Callable[[Exchange], None] | None = None,
    ) -> None:
        """`call`: one that is prepared. `on_news` is told of news; `notify` wakes hosts where no engine step does."""
        self.call = NOT_PREPARED if call is None else call
        """Final before the first record is there."""
        self.request_id = request_id
        self.records: deque[bytes] = deque()
        """What is ready to be sent."""
        self.begun = False
        """Whether there has been a record."""
        self.finished = False
        """No further record comes. Read it before `records`: it is set after the last one was put there."""
        self._state = State.PREPARING if call is None else State.RUNNING
        self._lock = threading.Lock()
        """Held for each change of the state. The engine is not called under it."""
        self._engine = engine
        self._admission = admission
        self._meter = meter
        self._on_news = on_news
        self._notify = notify
        self._tickets: list[int] = []
        self._size = 0
        """What an answer that is not streamed has come to, see model/text/response_limit.py."""
        self._unsent: Unsent | None = None
        self._next_check = 0
        """With how many records that wait it is to be asked."""

    @property
    def state(self) -> State:
        """Where it is."""
        return self._state

    @property
    def failure(self) -> LmiError | None:
        """The error that ended the request."""
        return self.call.reply.failure

    def submit(self) -> None:
        """Hands the generations to the engine. An engine that is not there is answered like any failure."""
        self._meter.streamed = self.call.streamed
        try:
            for prompt, generation in enumerate(self.call.generations):
                if self._state is not State.RUNNING:
                    break
                try:
                    self._tickets.append(self._engine.submit(generation, partial(self._feed, prompt)))
                except LmiError as error:
                    self._deliver(error, prompt)
        except Exception as error:
            log.exception("request %s could not be submitted to the engine", self.request_id)
            message = f"the request could not be submitted to the engine: {type(error).__name__}"
            self._deliver(GenerationError(message))
        if self._state is not State.RUNNING:
            # It has ended meanwhile, perhaps before the last of them was there.
            self._engine.abort(self._tickets)

    def _deliver(self, error: LmiError, prompt: int = 0) -> None:
        """Feeds a failure that the engine does not tell of: never while its thread feeds something else."""
        self._engine.deliver(partial(self._feed, prompt), Failed.of(error))

    def answer(self, response: Response) -> None:
        """Ends it with a whole answer: one that needs no engine, or a refusal."""
        with self._lock:
            if self._state in BEFORE:
                self._take_answer(response)

    def _take_answer(self, response: Response) -> None:
        """Ends it so, within the lock."""
        reply = FixedResponse(
            status=response.status,
            content_type=response.content_type,
            headers=response.headers,
            failure=response.failure,
            finished=True,
        )
        self.call = ParsedRequest((), reply, response.dialect)
        records = [response.body] if response.body else []
        if records and self._meter.keeps:
            self._meter.keep(records)
        self._end_locked(records)

    def expire(self, error: LmiError) -> None:
        """Ends it with an error; on any thread but those of sinks and listeners."""
        with self._lock:
            if self._state in OVER:
                return
            self._state = State.ENDING
        self._deliver(error)
        self._notify()

    def abort(self) -> None:
        """Ends it as nobody reads it; the records so far stay, and nothing is added to them."""
        self._on_news = None
        if self._end(aborted=True):
            self._engine.abort(self._tickets)

    def take_all(self) -> bytes:
        """Everything that is ready, in one piece."""
        records = self.records
        # As many as there are now: more may come on the engine's thread meanwhile.
        return b"".join([records.popleft() for _ in range(len(records))])

    def _end(self, records: Sequence[bytes] = (), *, aborted: bool = False) -> bool:
        """Ends it with `records`; whether it had not ended before."""
        with self._lock:
            if self._state is State.ENDED:
                return False
            self._end_locked(records, aborted=aborted)
        return True

    def _end_locked(self, records: Sequence[bytes], *, aborted: bool = False) -> None:
        """The same within the lock. A host that sees `records` before the end takes them for an answer that goes on."""
        # Before anybody can have the last record.
        try:
            self._meter.end(self, aborted=aborted)
        except Exception:
            log.exception("request %s could not be counted", self.request_id)
        self.records.extend(records)
        # Before anybody can see that it has ended: a client that asks again at once finds its place free.
        self._admission.release(self)
        self._state = State.ENDED
        self.finished = True

    def _feed(self, prompt: int, event: EngineEvent, noted: bool = False) -> None:
        """Takes an event, on the engine's thread unless the meter has `noted` it there. Raises nothing: what goes wrong
        with a request is its own failure, and no other's.
        """
        if self.finished:
            return
        try:
            # Rendered is for those that hold prompts back, which do not pass it on (deferred.py).
            self._take(prompt, cast("Event", event), noted)
        except Exception as error:
            log.exception("request %s: an event could not be taken", self.request_id)
            self._break_off(prompt, GenerationError(f"the request failed: {type(error).__name__}"))
        self._tell()

    def _tell(self) -> None:
        """Tells the host that there is news."""
        if (on_news := self._on_news) is None:
            return
        if self.finished:
            # Whoever is told refers to the exchange: a cycle, which only a search for garbage would free.
            self._on_news = None
        try:
            on_news(self)
        except Exception:
            log.exception("request %s: its host could not be told of news", self.request_id)

    def _break_off(self, prompt: int, error: LmiError) -> None:
        """Ends it, whatever fails."""
        if not self.finished:
            self._end(self._failure_records(prompt, error))
        self._engine.abort(self._tickets)

    def _take(self, prompt: int, event: Event, noted: bool) -> None:
        if not noted:
            self._meter.note(event)
        reply = self.call.reply
        records = self.records
        made: Sequence[bytes] = ()
        if failed := isinstance(event, Failed):
            event = self.call.fields.failed(event, prompt)
        try:
            made = reply.feed(event, prompt) if self._meter.streamed else self._feed_whole(event, prompt)
            if made:
                self.begun = True
                if self._meter.keeps:
                    self._meter.keep(made)
            ended = reply.finished
            if ended and self.call.responses is not None:
                # Before anybody can have the last record.
                keep(reply, self.call.responses)
        except Exception as error:
            log.exception("request %s: the formatter failed", self.request_id)
            ended = failed = True
            made = self._failure_records(prompt, GenerationError(f"the output formatter failed: {error}"))
        if not ended:
            records.extend(made)
            made = ()
            if len(records) > self._next_check and (excess := self._excess()) is not None:
                ended = True
                made = self._failure_records(prompt, excess)
        if ended:
            self._end(made)
            if failed or len(self._tickets) > 1 or reply.failure is not None:
                self._engine.abort(self._tickets)

    def _feed_whole(self, event: Event, prompt: int) -> list[bytes]:
        """Feeds the reply of an answer that is not streamed, unless it becomes longer than it may be."""
        reply = self.call.reply
        limit = self._admission.max_answer_bytes
        copies = self.call.generations[prompt].sampling.n if isinstance(event, Started) else 1
        self._size += size_of(event, copies)
        if (size := self._size) <= limit:
            made = reply.feed(event, prompt)
            if reply.failure is not None or (size := sum(map(len, made))) <= limit:
                return made
        error = too_long(size, limit)
        log.warning("request %s ended: %s", self.request_id, error)
        return reply.feed(Failed.of(error), prompt)

    def _excess(self, patience: float | None = None) -> LmiError | None:
        """What to end with if more waits to be sent than may."""
        unsent = self._unsent = self._unsent or Unsent(self._admission.max_unsent_bytes)
        error = unsent.error(self.records, PATIENCE_S if patience is None else patience)
        self._next_check = unsent.next_check
        if error is not None:
            log.warning("request %s ended: %s", self.request_id, error)
        return error

    def _failure_records(self, prompt: int, error: LmiError) -> Sequence[bytes]:
        """What the dialect says of a failure of its own formatter, if it still can say something."""
        try:
            return self.call.reply.feed(Failed.of(error), prompt)
        except Exception:
            log.exception("request %s: the formatter also failed to render the error", self.request_id)
        if self.begun:
            return ()
        self.call = replace(self.call, reply=FixedResponse(status=error.status, failure=error, finished=True))
        return [encode({"error": error.message, "code": error.status})]


NOT_PREPARED = ParsedRequest((), FixedResponse())
"""The call of a request of which nothing is known yet."""
