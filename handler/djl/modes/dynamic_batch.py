"""Dynamic batch: the host hands over a whole batch and waits until each request in it has its answer.

    [request, request, ...]  -->  answers  -->  [Whole, Whole, ...]     one for each, when all are there
    request                  -->  answer   -->  Whole | Chunks          alone in its batch: streamed if it asks for that

The requests of a batch run side by side in the engine, each with its own parameters and in its own dialect. What has
not ended when Java's patience does (call_limit.py) is ended with an error; a stream that has begun only where a next
call waits.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ....formatters import Request, Response, refusal
from ....model.errors import GenerationError, TimeLimitError, UnsupportedError
from ....model.options import Settings
from ...exchange import Exchange
from ...headers import headers_of
from ...service import Service
from ..frames import FIELD, next_slice
from .call_limit import NextCall

__all__ = ["Chunks", "PlainBatch", "Whole"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Whole:
    """A complete answer. This path of the host passes any status with any body."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Chunks:
    """An answer that is still in the making."""

    records: Iterator[bytes]
    """Waits for each record. To close it before its end aborts the request."""
    status: int
    headers: Mapping[str, str]


class PlainBatch:
    """Runs batches, one after another as the host calls."""

    def __init__(self, service: Service, limit: float = threading.TIMEOUT_MAX) -> None:
        """`limit`: seconds that a call may take."""
        self.next_call = NextCall()
        self._service = service
        self._limit = limit

    def answer(self, request: Request) -> Whole | Chunks:
        """The answer to a request that is alone in its batch."""
        deadline = self.next_call.take() + self._limit
        wakeup = _Wakeup()
        self._service.metrics.batch([request])
        opened = self._service.open(request, wakeup.notify)

        def ready() -> bool:
            """Of what is not streamed, all is: it has a Content-Length."""
            return opened.finished or (bool(opened.records) and opened.call.streamed)

        if not wakeup.wait(ready, deadline):
            self._expire([opened], wakeup, self._late_error())
        if not ready():
            return self._refused_late(opened, request)
        try:
            complete = opened.finished and (not opened.call.streamed or len(opened.records) <= 1)
            if complete and sum(map(len, opened.records)) <= FIELD:
                return _whole_of_exchange(opened)
            reply = opened.call.reply
            return Chunks(self._records(opened, wakeup), reply.status, headers_of(reply))
        except Exception as error:  # noqa: BLE001 - logged there
            return self._whole_of_fault(opened, request, error)

    def answers(self, requests: Sequence[Request]) -> list[Whole]:
        """The answers to a batch, in order, once the last of them is complete."""
        deadline = self.next_call.take() + self._limit
        wakeup = _Wakeup()
        self._service.metrics.batch(requests)
        several = len(requests) > 1
        opened = [self._service.open(request, wakeup.notify, batched=several) for request in requests]
        taken: dict[Exchange, list[bytes]] = {exchange: [] for exchange in opened}

        def complete() -> bool:
            """Takes what is there of streams meanwhile, as whoever reads them alone does."""
            for exchange, records in taken.items():
                if exchange.call.streamed and exchange.records:
                    records.append(exchange.take_all())
            return all(exchange.finished for exchange in opened)

        if not wakeup.wait(complete, deadline):
            self._expire(opened, wakeup, self._late_error())
        for exchange, records in taken.items():
            exchange.records.extendleft(reversed(records))
        return [self._whole(exchange, request) for request, exchange in zip(requests, opened, strict=True)]

    def _whole(self, exchange: Exchange, request: Request) -> Whole:
        """A request's part of the batch's answer. Raises nothing: the others' answers are complete."""
        if not exchange.finished:
            return self._refused_late(exchange, request)
        try:
            return _within(_whole_of_exchange(exchange), request, self._service.settings)
        except Exception as error:  # noqa: BLE001 - logged there
            return self._whole_of_fault(exchange, request, error)

    def _whole_of_fault(self, exchange: Exchange, request: Request, error: Exception) -> Whole:
        log.error("request %s: its response could not be sent", request.request_id, exc_info=error)
        exchange.abort()
        failure = GenerationError(f"the response could not be sent: {type(error).__name__}")
        return _whole_of_response(refusal(failure, request, self._service.settings))

    def _expire(self, exchanges: Sequence[Exchange], wakeup: _Wakeup, error: TimeLimitError) -> None:
        """Ends what runs, with `error`; returns when it has ended, or has not within a moment."""
        for exchange in exchanges:
            if not exchange.finished:
                exchange.expire(error)
        wakeup.wait(lambda: all(exchange.finished for exchange in exchanges), time.monotonic() + EXPIRY_TIMEOUT_S)

    def _late_error(self) -> TimeLimitError:
        return TimeLimitError(
            f"the request took longer than {self._limit:g} seconds, nine tenths of DJL Serving's predict_timeout"
        )

    def _early_error(self) -> TimeLimitError:
        return TimeLimitError(
            f"the stream has ended since another request has waited for {self._limit / 2:g} seconds "
            "(half of what DJL Serving's predict_timeout allows)"
        )

    def _refused_late(self, exchange: Exchange, request: Request) -> Whole:
        """The answer of one that cannot be ended, as a thread of user code that hangs."""
        exchange.abort()
        return _whole_of_response(refusal(self._late_error(), request, self._service.settings))

    def _records(self, exchange: Exchange, wakeup: _Wakeup) -> Iterator[bytes]:
        # Java waits for a stream's head only, unless the next call waits for the stream's end.
        deadline = math.inf
        expired = False
        try:
            while True:
                finished = exchange.finished
                while exchange.records:
                    yield next_slice(exchange.records)
                if finished or expired:
                    return
                self.next_call.look()
                if (waiting_since := self.next_call.since) is not None:
                    # Half of its time is the stream's, the other half its own.
                    deadline = waiting_since + self._limit / 2
                if expired := time.monotonic() >= deadline:
                    self._expire([exchange], wakeup, self._early_error())
                else:
                    until = min(deadline, time.monotonic() + LOOK_INTERVAL_S)
                    wakeup.wait(lambda: bool(exchange.records) or exchange.finished, until)
        finally:
            exchange.abort()


EXPIRY_TIMEOUT_S = 0.5
"""How long what has been ended has to end."""
LOOK_INTERVAL_S = 0.5
"""Seconds between two looks for a next call while a stream stands still."""


class _Wakeup:
    """Wakes the host's thread when an exchange has new records or has finished."""

    def __init__(self) -> None:
        self._condition = threading.Condition()

    def notify(self, _exchange: Exchange) -> None:
        with self._condition:
            self._condition.notify()

    def wait(self, ready: Callable[[], bool], deadline: float) -> bool:
        """Whether it is `ready` by then (time.monotonic)."""
        with self._condition:
            return self._condition.wait_for(ready, min(max(deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX))


def _within(whole: Whole, request: Request, settings: Settings) -> Whole:
    """`whole`, or an error in its place: an answer of a batch is one field (frames.py)."""
    if len(whole.body) <= FIELD:
        return whole
    message = f"the response is {len(whole.body)} bytes long, expected at most {FIELD} in a batch"
    return _whole_of_response(refusal(UnsupportedError(message), request, settings))


def _whole_of_response(answer: Response) -> Whole:
    return Whole(answer.body, answer.status, headers_of(answer))


def _whole_of_exchange(exchange: Exchange) -> Whole:
    reply = exchange.call.reply
    return Whole(b"".join(exchange.records), reply.status, headers_of(reply))
