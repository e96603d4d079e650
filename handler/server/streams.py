"""Requests on the local server's event loop.

    loop, or engine's thread: Exchange._feed -> mark;  Service.listen -> flush --once a step--> loop: Stream.wake
    Stream.wake: a stream's records are written at once;  else whoever waits has a turn

However many requests a step serves, the event loop is woken once: by the step itself, which the server has read there
(Engine.read_on).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import anyio
from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from ...formatters import Request
from ..exchange import Exchange
from ..headers import headers_of
from ..service import Service
from .connections.connection import connection_of, in_chunks
from .connections.direct import take_ready

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11

    from .connections.connection import Connection

__all__ = ["AsyncService", "Stream", "StreamResponse", "Waiter"]

log = logging.getLogger(__name__)


class Waiter(Protocol):
    """Who waits for an exchange's records on the event loop."""

    exchange: Exchange

    def wake(self) -> None:
        """Called when there may be new ones. Raises nothing: others' records are behind it."""


class Stream:
    """An exchange whose records can be awaited. A context manager: leaving it early aborts the exchange."""

    __slots__ = ("_connection", "_error", "_merge", "_news", "exchange")

    def __init__(self) -> None:
        self.exchange: Exchange
        self._news = asyncio.Event()
        self._connection: Connection | None = None
        """Where records are written as they come."""
        self._merge = False
        self._error: Exception | None = None
        """Why they could not be."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Ends it: nobody takes further records."""
        self._news.set()
        self.exchange.abort()

    def wake(self) -> None:
        """Called on the loop when there may be new records. Raises nothing: others' records are behind it."""
        if self._connection is not None:
            try:
                if self._write(self._connection):
                    return
            except Exception as error:  # noqa: BLE001 - raised by `write_to`
                self._connection, self._error = None, error
                self.leave()
        self._news.set()

    async def ready(self) -> bool:
        """Waits until there is a record, True, or the end, False."""
        exchange = self.exchange
        while True:
            finished = exchange.finished
            if exchange.records:
                return True
            if finished:
                return False
            self._news.clear()
            if not exchange.records and not exchange.finished:
                await self._news.wait()

    async def ended(self) -> None:
        """Waits until no more records come."""
        while not self.exchange.finished:
            self._news.clear()
            if not self.exchange.finished:
                await self._news.wait()

    async def write_to(self, connection: Connection, *, merge: bool = False) -> None:
        """Writes each record as it comes, in a chunk of its own; with `merge` those that are ready together as one."""
        self._connection, self._merge = connection, merge
        try:
            while await self.ready():
                await connection.drained()
                if self._error is not None:
                    # What comes behind a record that is missing is not for the client.
                    break
                self._write(connection)
        finally:
            self._connection = None
        if (error := self._error) is not None:
            self._error = None
            try:
                raise error
            finally:
                # Its traceback has this frame.
                del error

    def _write(self, connection: Connection) -> bool:
        """Writes what its client's buffers take; whether there is nothing to do until there is news."""
        exchange = self.exchange
        records = exchange.records
        finished = exchange.finished
        while records and not connection.full:
            connection.write_chunks(take_ready(exchange, merge=self._merge))
        return not finished and not records

    async def records(self, *, merge: bool = False) -> AsyncIterator[bytes]:
        """Each record as it comes; with `merge` those that are ready together, as one."""
        exchange = self.exchange
        while await self.ready():
            yield exchange.take_all() if merge else exchange.records.popleft()


class StreamResponse(HttpResponse):
    """Sends a stream's records, each in an HTTP chunk of its own; ends the exchange when the client goes away.

    With `merge` records that are ready together share a chunk. None waits for others: they gather while the event loop
    or the client is slower than the engine, or when a step brings several. A client that has not read its answer after
    `timeout` seconds is cut off (run.py does so with what uvicorn still has for it).
    """

    def __init__(self, stream: Stream, timeout: float, *, merge: bool) -> None:
        self._stream = stream
        self._merge = merge
        self._timeout = timeout
        self.raw_headers = []
        # FastAPI asks for it, where a hook (hooks.py) has this for its answer.
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs until the last record is sent or the client has gone."""
        stream = self._stream
        with stream:
            leaving = asyncio.ensure_future(_disconnected(receive))
            leaving.add_done_callback(lambda _: stream.leave())
            try:
                with anyio.move_on_after(self._timeout) as limit:
                    await self._send_all(scope, send)
            except Exception:
                log.exception("request %s: its response could not be sent", stream.exchange.request_id)
                raise
            finally:
                leaving.cancel()
            if limit.cancelled_caught:
                log.warning(
                    "request %s: its connection is closed, the client did not read the response for too long",
                    stream.exchange.request_id,
                )

    async def _send_all(self, scope: Scope, send: Send) -> None:
        stream = self._stream
        exchange = stream.exchange
        await stream.ready()
        if not exchange.call.streamed:
            await stream.ended()
        reply = exchange.call.reply
        headers = {**headers_of(reply), **self.headers}
        if not exchange.call.streamed or (reply.status != 200 and exchange.finished and len(exchange.records) <= 1):
            body = exchange.take_all()
            await send(_start(reply.status, {**headers, "content-length": str(len(body))}))
            await send({"type": "http.response.body", "body": body})
            return
        # The minimal chat document, Response Headers. Where the connection is to be closed h11 replaces it.
        await send(_start(reply.status, {**headers, "connection": "keep-alive"}))
        connection = connection_of(scope)
        if connection is not None and in_chunks(scope, reply.status, map(str.lower, headers)):
            await stream.write_to(connection, merge=self._merge)
        else:
            async for record in stream.records(merge=self._merge):
                await send({"type": "http.response.body", "body": record, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _start(status: int, headers: dict[str, str]) -> dict[str, object]:
    pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": pairs}


async def _disconnected(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


BETWEEN = 16
"""After so many requests the engine's steps are read: many that come together would keep the loop from them."""


class AsyncService:
    """Opens streams on the running event loop."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._fresh: deque[Waiter] = deque()
        self._started = 0
        service.metrics.loops.append(lambda: self._loop)
        service.listen(self._flush)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Has the loop read the engine's steps meanwhile."""
        engine = self.service.engine
        engine.read_on(self._loop)
        try:
            yield
        finally:
            engine.read_on(None)

    def open(self, request: Request) -> Stream:
        """Starts what the request asks for; what is refused has ended. Never waits."""
        stream = Stream()
        self.start(request, stream)
        return stream

    def start(self, request: Request, waiter: Waiter) -> None:
        """As `open`, for a `waiter`."""
        fresh = self._fresh
        waiter.exchange = self.service.open(request, lambda _: fresh.append(waiter))
        self._started += 1
        if self._started % BETWEEN == 0:
            self.service.engine.read_ready()
        # What the engine was not there for has its news already: nothing else would take it out.
        self._wake()

    def _flush(self) -> None:
        """After each step of the engine, on the loop or on the engine's thread, or on one that user code has run on."""
        if not self._fresh:
            return
        if threading.get_ident() == self._thread:
            # Not at once: a step is handed out in a lock.
            self._loop.call_soon(self._wake)
            return
        try:  # noqa: SIM105 - once a step, where a context manager takes three calls
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            # The loop may be closed already when the engine reports its end.
            pass

    def _wake(self) -> None:
        while self._fresh:
            self._fresh.popleft().wake()
