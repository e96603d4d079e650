"""One request on its way through the engine, the same on every host.

    Call --begin--> Engine.submit;   event --> Reply.feed --> records --> the host takes them, in its own way and time

Events come on the engine's thread and records are taken on the host's; a deque is all that the two share.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from ..formatters import Call
from ..model.engine import Engine
from ..model.errors import GenerationError, LmiError
from ..model.events import Event, Failed
from .metrics import Meter

__all__ = ["Exchange"]

log = logging.getLogger(__name__)


class Exchange:
    """Runs a call and collects its records."""

    __slots__ = ("_engine", "_meter", "_on_news", "_tickets", "call", "finished", "records", "request_id")

    def __init__(
        self,
        call: Call,
        engine: Engine,
        *,
        meter: Meter,
        request_id: str = "",
        on_news: Callable[[Exchange], None] | None = None,
    ) -> None:
        self.call = call
        self.request_id = request_id
        self.records: deque[bytes] = deque()
        """What is ready to be sent."""
        self.finished = False
        """No further record will come. Read it before `records`: it is set after the last record was put there."""
        self._engine = engine
        self._meter = meter
        self._on_news = on_news
        self._tickets: list[int] = []

    @property
    def exhausted(self) -> bool:
        """Whether everything has been produced and taken."""
        return self.finished and not self.records

    @property
    def failure(self) -> LmiError | None:
        """The error that ended the request."""
        return self.call.reply.failure

    def begin(self) -> None:
        """Hands the generations to the engine. An engine that is not there is answered like any failure."""
        self._meter.streamed = any(generation.stream for generation in self.call.generations)
        for prompt, generation in enumerate(self.call.generations):
            if self.finished:
                return
            try:
                self._tickets.append(self._engine.submit(generation, partial(self._feed, prompt)))
            except LmiError as error:
                self._feed(prompt, Failed.of(error))

    def abort(self) -> None:
        """Ends the generations; the records so far stay, and nothing is added to them."""
        if not self.finished:
            self.finished = True
            self._engine.abort(self._tickets)
            self._meter.end(self, aborted=True)

    def _feed(self, prompt: int, event: Event) -> None:
        """Takes an event, on the engine's thread."""
        if not self.finished:
            self._meter.note(event)
            self._format(prompt, event)

    def _format(self, prompt: int, event: Event) -> None:
        """Makes records of an event. What the formatter does wrong is this request's failure alone."""
        if self.finished:
            return
        reply = self.call.reply
        try:
            records = reply.feed(event, prompt)
            self.records.extend(records)
            if self._meter.keeps:
                self._meter.keep(records)
            ended = reply.finished
        except Exception as error:
            log.exception("request %s: the formatter failed", self.request_id)
            ended = True
            self._fail(prompt, GenerationError(f"the output formatter failed: {error}"))
        if ended:
            # Before anybody can have the last record.
            self._meter.end(self)
            self.finished = True
            if isinstance(event, Failed) or len(self._tickets) > 1 or reply.failure is not None:
                self._engine.abort(self._tickets)
        if self._on_news is not None:
            self._on_news(self)

    def _fail(self, prompt: int, error: LmiError) -> None:
        """Lets the dialect tell of a failure of its own formatter, if it still can."""
        try:
            self.records.extend(self.call.reply.feed(Failed.of(error), prompt))
        except Exception:
            log.exception("request %s: the formatter cannot tell of its failure either", self.request_id)
