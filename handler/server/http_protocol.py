"""Connections as uvicorn's protocol for httptools has them, within limits that uvicorn does not have.

    connection --too many--> spare: told so once it asks (app.py) --far too many--> cut off
    head --HEAD_BYTES, HEADERS--> 431    --HEAD_SECONDS--> 408
    head complete --> the application, whose limits are those of bodies and answers (bodies.py)

uvicorn keeps whatever a head has, for as long as it takes: its only timer is that of connections that have been used
and are idle. Nothing imports this but what listens: uvicorn takes its time to import.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import sys
from http import HTTPStatus
from typing import Any

import uvicorn.protocols.http.httptools_impl as uvicorns

from ...model.options import Settings
from .bodies import CROWDED, TRANSPORT

__all__ = ["Door", "room"]

log = logging.getLogger(__name__)

HEAD_BYTES = 64 << 10
"""Of a request line with its headers. A path may hold a request of the minimal dialect; proxies allow 8 to 32 KiB."""
HEADERS = 100
HEAD_SECONDS = 20.0
"""From a connection's beginning, or a head's, to the head's end."""
LINGER_BYTES = 1 << 20
LINGER_SECONDS = 2.0
"""What comes after a refusal is dropped: a connection that is closed upon it takes the answer with it."""
IDLE = 64
"""Connections beyond twice the requests that may be open: of who asks for health and metrics."""
SPARE = 1024
"""The fewest that are told that they are too many, if there are descriptors enough."""
DESCRIPTORS = 192
"""That are kept for all else."""


def room(settings: Settings) -> tuple[int, int]:
    """How many connections a server takes, and how many beyond them are told that they are too many.

    Two for each request that may be open, if there are descriptors enough: clients keep connections for later. As many
    again are told, for whoever asks in bursts is to hear why. The soft limit of descriptors is raised as far as that
    needs, and the hard one allows.
    """
    wanted = 2 * (settings.max_rolling_batch_size + settings.limits.max_queued_requests) + IDLE
    spare = max(wanted, SPARE)
    needed = wanted + spare + DESCRIPTORS
    soft, hard = (sys.maxsize if one == resource.RLIM_INFINITY else one for one in _limits())
    if soft < needed:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard), _limits()[1]))
            soft = min(needed, hard)
    # At least half of them, however few there are.
    left = max(soft - DESCRIPTORS, soft // 2)
    if left >= wanted + wanted // 16:
        return wanted, min(spare, left - wanted)
    most = left * 8 // 9
    log.warning("the limit of open files, %d, is room for %d connections, not for %d", soft, most, wanted)
    return most, left - most


def _limits() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)


class Door:
    """Makes the protocol of each connection of one server: the `http` of uvicorn's configuration."""

    def __init__(self, most: int, spare: int, *, head_seconds: float = HEAD_SECONDS) -> None:
        self.most = most
        self.spare = spare
        self.head_seconds = head_seconds
        self._waiting: dict[_Connection, float] = {}
        """Until when a head must be there. All have the same time, so that the oldest is the next."""
        self._armed = False

    def __call__(self, **arguments: Any) -> asyncio.Protocol:
        """A protocol, as uvicorn makes it of a class of its own."""
        return _Connection(self, **arguments)

    def crowded(self, connections: int) -> bool:
        """Whether the last of so many is one too many."""
        return connections > self.most

    def crammed(self, connections: int) -> bool:
        """Whether it cannot even be told so."""
        return connections > self.most + self.spare

    def wait(self, one: _Connection) -> None:
        """Begins the time in which a head must come, unless it has begun."""
        if one not in self._waiting:
            deadline = self._waiting[one] = one.loop.time() + self.head_seconds
            self._arm(one.loop, deadline)

    def let_in(self, one: _Connection) -> None:
        """Ends it."""
        self._waiting.pop(one, None)

    def _arm(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        if not self._armed:
            self._armed = True
            loop.call_at(deadline, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._armed = False
        while self._waiting:
            one, deadline = next(iter(self._waiting.items()))
            if deadline > loop.time():
                self._arm(loop, deadline)
                return
            del self._waiting[one]
            one.too_late()


class _RefusedError(Exception):
    """A head is refused while it is parsed."""


class _Connection(uvicorns.HttpToolsProtocol):
    """uvicorn's, whose requests know their connection and whether there are too many."""

    def __init__(self, door: Door, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._door = door
        self._crowded = False
        self._head = 0
        """Bytes of the head so far, of the parts that are complete."""
        self._loose = 0
        """Bytes that have come since a head was complete or a part of a body was there."""
        self._advanced = False
        """Whether such a thing has come with what is read now."""
        self._reason: tuple[HTTPStatus, str] | None = None
        self._refused = False
        self._dropped = 0
        self._application: Any = self.app
        self.app = self._run

    async def _run(self, scope: Any, receive: Any, send: Any) -> None:
        """The application, whose requests are told of their connection."""
        scope[TRANSPORT] = self.transport
        scope[CROWDED] = self._crowded
        await self._application(scope, receive, send)

    @property
    def _serving(self) -> bool:
        """Whether a request has been handed on that is not answered."""
        cycle: uvicorns.RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        count = len(self.connections)
        if self._door.crammed(count):
            self._refused = True
            transport.abort()
            return
        self._crowded = self._door.crowded(count)
        self._door.wait(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.let_in(self)
        super().connection_lost(exc)
        # Nothing is to wait for the garbage collector.
        self.app = self._application

    def data_received(self, data: bytes) -> None:
        if self._refused:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self.transport.abort()
            return
        self._advanced = False
        super().data_received(data)
        if self._advanced:
            self._loose = 0
        else:
            self._loose += len(data)
            if self._loose > HEAD_BYTES:
                self._refuse(*_too_long())
        if self._serving:
            self._door.let_in(self)
        elif not self._refused:
            self._door.wait(self)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of a trailer, after the body, too."""
        if len(self.headers) >= HEADERS:
            self._reason = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEADERS} headers"
            raise _RefusedError
        super().on_header(name, value)
        self._count(len(name) + len(value) + len(": \r\n"))

    def on_headers_complete(self) -> None:
        parser: Any = self.parser
        self._count(len(parser.get_method()) + len("  HTTP/1.1\r\n\r\n"))
        self._advanced = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._advanced = True
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """What uvicorn answers to what it cannot read, at the end of `data_received`."""
        self._refuse(*(self._reason or (HTTPStatus.BAD_REQUEST, msg)))

    def too_late(self) -> None:
        """No head has come in time."""
        if self._loose and not self.transport.is_closing():
            seconds = f"the head of the request was not complete within {self._door.head_seconds:g} seconds"
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, seconds)
        else:
            self.transport.abort()

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > HEAD_BYTES:
            self._reason = _too_long()
            raise _RefusedError

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        """Answers without the application, and ends the connection once the client has read that."""
        if self._refused:
            return
        self._refused = True
        self._door.let_in(self)
        begun = self._serving and (self.cycle.response_started or bool(self.pipeline))
        if begun or self.transport.is_closing():
            # An answer of another request is being sent.
            self.transport.abort()
            return
        body = json.dumps({"error": why, "code": status.value}).encode()
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
        if self._serving:
            # Its body cannot be read. It is to write nothing more.
            self.transport.close()
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)


def _too_long() -> tuple[HTTPStatus, str]:
    return (
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        f"the head of the request: expected at most {HEAD_BYTES} bytes",
    )
