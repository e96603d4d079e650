"""Dynamic batch: the host hands over a whole batch and waits until each request in it has its answer.

    [request, request, ...]  -->  answers  -->  [Whole, Whole, ...]     one for each, when all are there
    request                  -->  answer   -->  Whole | Chunks          alone in its batch: streamed if it asks for that

The requests of a batch run side by side in the engine, each with its own parameters and in its own dialect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...formatters import Request, Response, refusal
from ...model.errors import UnsupportedError
from ...model.options import Settings
from ..exchange import Exchange
from ..headers import headers_of
from ..service import Service
from .slices import FIELD, SLICE, next_slice

__all__ = ["Chunks", "PlainBatch", "Whole"]


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

    def __init__(self, service: Service) -> None:
        self._service = service

    def answer(self, request: Request) -> Whole | Chunks:
        """The answer to a request that is alone in its batch."""
        news = _News()
        self._service.metrics.batch([request])
        opened = self._service.open(request, news.tell)
        if isinstance(opened, Response):
            return _whole_of_answer(opened)
        news.wait(lambda: bool(opened.records) or opened.finished)
        if opened.finished and len(opened.records) <= 1 and all(len(record) <= SLICE for record in opened.records):
            return _whole_of_exchange(opened)
        reply = opened.call.reply
        return Chunks(_records(opened, news), reply.status, headers_of(reply))

    def answers(self, requests: Sequence[Request]) -> list[Whole]:
        """The answers to a batch, in order, once the last of them is complete."""
        news = _News()
        self._service.metrics.batch(requests)
        opened = [self._service.open(request, news.tell) for request in requests]
        running = [entry for entry in opened if isinstance(entry, Exchange)]
        news.wait(lambda: all(exchange.finished for exchange in running))
        return [
            _whole_of_answer(entry)
            if isinstance(entry, Response)
            else _within(_whole_of_exchange(entry), request, self._service.settings)
            for request, entry in zip(requests, opened, strict=True)
        ]


class _News:
    """Wakes the host's thread when an exchange has news."""

    def __init__(self) -> None:
        self._told = threading.Condition()

    def tell(self, _exchange: Exchange) -> None:
        with self._told:
            self._told.notify()

    def wait(self, come: Callable[[], bool]) -> None:
        with self._told:
            self._told.wait_for(come)


def _records(exchange: Exchange, news: _News) -> Iterator[bytes]:
    try:
        while True:
            finished = exchange.finished
            while exchange.records:
                yield next_slice(exchange.records)
            if finished:
                return
            news.wait(lambda: bool(exchange.records) or exchange.finished)
    finally:
        exchange.abort()


def _within(whole: Whole, request: Request, settings: Settings) -> Whole:
    """`whole`, or an error in its place: an answer of a batch is one field (slices.py)."""
    if len(whole.body) <= FIELD:
        return whole
    told = f"the response is {len(whole.body)} bytes long, expected at most {FIELD} in a batch"
    return _whole_of_answer(refusal(UnsupportedError(told), request, settings))


def _whole_of_answer(answer: Response) -> Whole:
    return Whole(answer.body, answer.status, headers_of(answer))


def _whole_of_exchange(exchange: Exchange) -> Whole:
    reply = exchange.call.reply
    return Whole(b"".join(exchange.records), reply.status, headers_of(reply))
