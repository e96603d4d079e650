"""uvicorn's connection, which also lets a stream's records be written to it as they come, which is not closed on a
request that has just come, and which gives way to others while it waits for one.

    connected, answered --> waiting --a head's first byte--> its head, at most HEAD_S --> a request --> answered
                               |--KEEP_ALIVE_S--> closed         |--> 408
                               |--at least USED_S, longest of all, where there are more than may be--> closed

By ASGI each record is a task's turn, a message and objects of h11's; docs/performance.md, The profile, has what that
costs and what this does.
"""

from __future__ import annotations

import asyncio
import fcntl
import termios
import weakref
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

__all__ = ["Connection", "Waiting", "connection_of", "in_chunks"]

KEY = "lmi.connection"
HEAD_S = 30.0
"""Seconds from the first byte of a request's head to its last."""
USED_S = 0.5
"""Seconds that a connection waits before it may give way: its client has just opened it, or just had an answer."""
LOOKS = 16
"""How many connections are looked at, to close one, when another comes."""
TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 34\r\n"
    b"connection: close\r\n\r\nThe request's head came too slowly"
)


class Waiting:
    """The connections of a server that wait for a request, those that have waited longest first."""

    def __init__(self) -> None:
        self._since: dict[Connection, float] = {}
        """By the event loop's clock."""

    def enter(self, connection: Connection) -> None:
        """Takes one that waits from now on."""
        self._since[connection] = connection.loop.time()

    def leave(self, connection: Connection) -> None:
        """It has a request, or is gone."""
        self._since.pop(connection, None)

    def make_room(self, newest: Connection, limit: int) -> bool:
        """Closes those that have waited longest; whether there are fewer than `limit` then, with the `newest`."""
        for _ in range(LOOKS):
            if len(newest.connections) < limit:
                return True
            oldest, since = next(iter(self._since.items()))
            if oldest is newest or newest.loop.time() - since < USED_S:
                return False
            self.leave(oldest)
            # What nobody has read yet may be a request.
            if _arrived(oldest.transport):
                self.enter(oldest)
                continue
            # It is closed, and no longer counted, a turn of the event loop later.
            newest.connections.discard(oldest)
            oldest.close()
        return False


class Connection(H11Protocol):
    """HTTP/1.1, read and checked by h11."""

    limit_concurrency: int | None

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        waiting: Waiting,
    ) -> None:
        # Each of its requests finds it in its state (ASGI's specification, Lifespan State).
        super().__init__(config, server_state, {**app_state, KEY: weakref.ref(self)}, _loop)
        self._waiting = waiting
        self._head: asyncio.TimerHandle | None = None
        """Runs out when a head that has begun takes too long."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It waits for its first request as long as for another one."""
        super().connection_made(transport)
        self._wait()
        # uvicorn would count at each request, and refuse those of all connections while there is one too many.
        if (limit := self.limit_concurrency) is not None:
            self.limit_concurrency = None if self._waiting.make_room(self, limit) else 0

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._waiting.leave(self)
        self._end_of_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Part of a head, of a body, or of the next request."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._waiting.leave(self)
            self._end_of_head()
        elif self._head is None and not self.transport.is_closing():
            self._head = self.loop.call_later(HEAD_S, self._head_too_slow)

    def on_response_complete(self) -> None:
        """It waits for another request, unless one came while this one was answered."""
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._waiting.enter(self)

    def close(self) -> None:
        """Closes it, once what was written is sent."""
        self._end_of_head()
        self._unset_keepalive_if_required()
        self.transport.close()

    def _wait(self) -> None:
        self._waiting.enter(self)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def _end_of_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _head_too_slow(self) -> None:
        self.transport.write(TOO_SLOW)
        self.close()

    @property
    def has_body(self) -> bool:
        """Whether the whole body of the last request is there: reading it does not wait."""
        return not self.cycle.more_body

    @property
    def full(self) -> bool:
        """Whether its client should read before more is written."""
        return self.flow.write_paused

    async def drained(self) -> None:
        """Waits until it is not `full`, or is lost."""
        await self.flow.drain()

    def write_chunk(self, data: bytes) -> None:
        """Writes a chunk (RFC 9112, 7.1) of the response that has begun; a connection that is lost takes and drops it.

        The response must come in chunks: what h11 adds to data is nothing else then. Empty data is left out, since an
        empty chunk ends the response.
        """
        if data and not self.transport.is_closing():
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that has been idle for its time, unless a request has begun to arrive.

        uvloop may run a timer that is due before it reads what has arrived by then, and to close a connection with
        unread bytes resets it. What has arrived is read next, which ends the idle time.
        """
        if self.transport.is_closing() or _arrived(self.transport) == 0:
            super().timeout_keep_alive_handler()


def _arrived(transport: asyncio.Transport) -> int:
    """How many bytes have arrived that nobody has read (tcp(7), SIOCINQ)."""
    count = array("i", [0])
    fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.FIONREAD, count)
    return count[0]


def connection_of(scope: Mapping[str, Any]) -> Connection | None:
    """The connection of a request, unless another server than run.py's has it."""
    found = scope.get("state", {}).get(KEY)
    return found() if found is not None else None


def in_chunks(scope: Mapping[str, Any], status: int, headers: Iterable[str]) -> bool:
    """Whether h11 sends a response to it in chunks (RFC 9112, 6.1): `headers` are its names, in lower case."""
    return scope["http_version"] == "1.1" and status not in BODILESS and "content-length" not in headers


BODILESS = (204, 304)
