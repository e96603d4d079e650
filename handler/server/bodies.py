"""Connections of the local server: bodies that are too long, and clients that neither send nor read.

    body --read_body--> bytes, or TooLargeError, OverloadedError: what is too long is never held
    what is refused without its body --EarlyAnswer--> the answer at once, the body dropped
    connection --Connections.during--> cut off when it takes too long

uvicorn holds back what it sends once a client does not read, and tells nobody. A client that reads nothing for ever
would keep its connection for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from ...model.errors import OverloadedError, TooLargeError
from ..admission import too_large

__all__ = [
    "BODIES",
    "CROWDED",
    "TRANSPORT",
    "Bodies",
    "Connections",
    "EarlyAnswer",
    "is_small",
    "read_body",
    "refuse_body",
]

log = logging.getLogger(__name__)

TRANSPORT = "lmi.transport"
"""Where a request's scope has its connection."""
CROWDED = "lmi.crowded"
"""Where it has whether that is one too many."""
SMALL = 64 << 10
"""Bytes of a body that uvicorn reads before anybody asks for them."""
BODIES = 8
"""Bodies of the longest kind that may be read at once."""


class Bodies:
    """How many bytes of bodies are held while they are read, of all requests together."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.held = 0

    def take(self, count: int) -> None:
        """Counts bytes in; raises OverloadedError where there are too many. Negative ones are given back."""
        self.held += count
        if self.held > self.most and count > 0:
            raise OverloadedError(
                f"bodies of {self.held} bytes are being read, expected at most {self.most} "
                f"({BODIES} times option.max_body_bytes)"
            )


def is_small(http: HttpRequest) -> bool:
    """Whether the body is so short that uvicorn holds it anyway, and comes without being asked for."""
    return 0 <= _told(http) <= SMALL and "expect" not in http.headers


def refuse_body(http: HttpRequest, most: int) -> TooLargeError | None:
    """The error of a body that says itself that it is longer than `most`."""
    return too_large(most, told) if (told := _told(http)) > most else None


def _told(http: HttpRequest) -> int:
    """How long the body says that it is; -1 for one that does not."""
    if "transfer-encoding" in http.headers:
        return -1
    told = http.headers.get("content-length", "0")
    return int(told) if told.isdecimal() else -1


async def read_body(http: HttpRequest, most: int, bodies: Bodies) -> bytes:
    """The body.

    Raises TooLargeError beyond `most` bytes, OverloadedError where `bodies` are beyond theirs, ClientDisconnect when
    the client goes away.
    """
    parts: list[bytes] = []
    size = counted = 0
    try:
        async for chunk in http.stream():
            size += len(chunk)
            if size > most:
                raise too_large(most)
            if size > SMALL:
                counted, more = size, size - counted
                bodies.take(more)
            parts.append(chunk)
        return b"".join(parts)
    finally:
        bodies.take(-counted)


class EarlyAnswer(HttpResponse):
    """An answer to a request whose body has not been read to its end. It is sent at once, then the connection ends.

    Of the body so many bytes are dropped before that: most clients read no answer before they have sent everything, and
    closing a connection with unread bytes would take the answer with it.
    """

    def __init__(self, answer: HttpResponse, most: int, dropping: Connections) -> None:
        self._answer = answer
        self._most = most
        self._dropping = dropping
        self.raw_headers = [*answer.raw_headers, (b"connection", b"close")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs until the body has ended, its time is over, or the client has gone."""
        answer = self._answer
        with self._dropping.during(scope):
            await send({"type": "http.response.start", "status": answer.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": answer.body, "more_body": True})
            # Who waits to be told to send the body will not.
            more, dropped = b"expect" not in dict(scope["headers"]), 0
            while more and dropped <= self._most:
                message = await receive()
                dropped += len(message.get("body", b""))
                more = message.get("more_body", False)
            await send({"type": "http.response.body", "body": b""})


@dataclass(slots=True, eq=False)
class _Timed:
    """A connection, from now on for so long."""

    transport: asyncio.Transport
    deadline: float
    left: bool = False
    """Whether all has been written, and the client has yet to read it."""


class Connections:
    """Cuts connections off, with one timer for all: each has the same time, so that the oldest is the next."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._timed: dict[_Timed, None] = {}
        self._armed = False

    @contextlib.contextmanager
    def during(self, scope: Scope) -> Iterator[None]:
        """Cuts the request's connection off unless this ends in time and the client reads what has been written."""
        transport: asyncio.Transport | None = scope.get(TRANSPORT)
        if transport is None:
            yield
            return
        timed = _Timed(transport, self._loop.time() + self._seconds)
        self._timed[timed] = None
        self._arm(timed.deadline)
        try:
            yield
        finally:
            if transport.get_write_buffer_size():
                timed.left = True
            else:
                self._timed.pop(timed, None)

    def _arm(self, deadline: float) -> None:
        if not self._armed:
            self._armed = True
            self._loop.call_at(deadline, self._sweep)

    def _sweep(self) -> None:
        self._armed = False
        now = self._loop.time()
        while self._timed:
            timed = next(iter(self._timed))
            if timed.deadline > now:
                self._arm(timed.deadline)
                return
            del self._timed[timed]
            # One that is left may serve other requests by now, unless it waits to be closed.
            if not timed.left or timed.transport.is_closing():
                log.warning("a connection is cut off: its client has neither sent nor read for too long")
                timed.transport.abort()
            elif timed.transport.get_write_buffer_size():
                timed.deadline = now + self._seconds
                self._timed[timed] = None
