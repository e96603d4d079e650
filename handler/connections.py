"""Connections of the local server: bodies that are too long, and clients that neither send nor read.

    body --read_body--> bytes, or TooLargeError: what is too long is never held
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
from typing import Any, cast

from starlette.requests import Request as HttpRequest
from starlette.types import Receive, Scope, Send

from .admission import too_large

__all__ = ["Connections", "connection", "read_body"]

log = logging.getLogger(__name__)

TRANSPORT = "lmi.transport"
"""Where a request's scope has its connection."""


def connection(**arguments: Any) -> asyncio.Protocol:
    """uvicorn's own protocol (the `http` of its configuration), whose requests know their connection."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    protocol: Any = AutoHTTPProtocol(**arguments)
    app = protocol.app

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        scope[TRANSPORT] = protocol.transport
        await app(scope, receive, send)

    protocol.app = known
    return cast(asyncio.Protocol, protocol)


async def read_body(http: HttpRequest, most: int) -> bytes:
    """The body; raises TooLargeError beyond `most` bytes, ClientDisconnect when the client goes away.

    Of a body that is too long as much again is read and dropped: most clients read no answer before they have sent
    everything, and closing a connection with unread bytes would take the answer with it.
    """
    told = http.headers.get("content-length", "")
    expected = int(told) if told.isdecimal() else 0
    if expected > most and "expect" in http.headers:
        # The client waits to be told to send it.
        raise too_large(most, expected)
    parts: list[bytes] = []
    size = 0
    async for chunk in http.stream():
        size += len(chunk)
        if max(size, expected) <= most:
            parts.append(chunk)
            continue
        parts.clear()
        if size > 2 * most:
            break
    if max(size, expected) > most:
        raise too_large(most, expected or None)
    return b"".join(parts)


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
