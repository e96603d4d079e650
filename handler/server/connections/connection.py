"""uvicorn's connection, which also hands on requests of the simplest form (direct.py), lets a stream's records be
written to it as they come, is not closed on a request that has just come, and gives way to others while it waits.

    connected, answered --> waiting --a head's first byte--> its head, at most HEAD_S --> a request --> answered
                               |--KEEP_ALIVE_S--> closed         |--> 408
                               |--at least USED_S, longest of all, where there are more than may be--> closed

    a request of the simplest form --as a whole, or in at most PIECES within HOLD_S--> answer --> answered

By ASGI each record is a task's turn, a message and objects of h11's; docs/performance.md, Tried, has what that costs.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from .direct import BODILESS, Answer, Direct, as_chunk, head_of
from .waiting import Waiting, arrived

__all__ = ["HEAD_S", "KEY", "Connection", "connection_of", "in_chunks"]

KEY = "lmi.connection"
HEAD_S = 30.0
"""Seconds from the first byte of a request's head to its last."""
HOLD_S = 1.0
"""Seconds that the rest of a request of the simplest form may take; then it is one like any other."""
PIECES = 16
"""In how many pieces it may come."""
TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 34\r\n"
    b"connection: close\r\n\r\nThe request's head came too slowly"
)


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
        direct: Direct | None = None,
    ) -> None:
        """`direct` takes requests of the simplest form."""
        # Each of its requests finds it in its state (ASGI's specification, Lifespan State).
        super().__init__(config, server_state, {**app_state, KEY: weakref.ref(self)}, _loop)
        self._waiting = waiting
        self._head: asyncio.TimerHandle | None = None
        """Runs out when a head that has begun takes too long."""
        self._direct = direct
        self.answer: Answer | None = None
        """That which is under way, of a request that `direct` has taken."""
        self._held: list[bytes] = []
        """Of such a request what has come so far, or what has come behind it while it is answered."""
        self._follows = False
        """Whether what has come behind it is about to have its turn."""
        self._release: asyncio.TimerHandle | None = None
        """Gives up waiting for the rest of it."""
        self.closes = False
        """Whether it ends with the answer that is under way."""

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
        self._end_of_hold()
        if (answer := self.answer) is not None:
            self.answer = None
            answer.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Part of a head, of a body, or of the next request."""
        if self.answer is not None or self._follows:
            # It has its turn when this is answered.
            self._held.append(data)
            self.flow.pause_reading()
        elif self._direct is None or not self._take(data, self._direct):
            self._feed(data)

    def _take(self, data: bytes, direct: Direct) -> bool:
        """Whether `direct` has, or may get, the request that begins with `data`, or with what is held."""
        if not self._held and (self.limit_concurrency is not None or not self._idle):
            return False
        self._held.append(data)
        data = b"".join(self._held)
        head = head_of(data, direct.paths)
        if head is not None and len(data) < head.end and len(self._held) < PIECES:
            self._waiting.leave(self)
            self._unset_keepalive_if_required()
            if self._release is None:
                self._release = self.loop.call_later(HOLD_S, self._let_go)
            return True
        self._end_of_hold()
        if head is None or len(data) < head.end:
            self._feed(data)
            return True
        self._waiting.leave(self)
        self._unset_keepalive_if_required()
        if rest := data[head.end :]:
            self._held.append(rest)
        if (answer := direct.begin(self, head, data[head.begin : head.end])) is None:
            self._held.clear()
            self._feed(data)
        else:
            answer.wake()
        return True

    @property
    def _idle(self) -> bool:
        """Whether h11 has nothing of a request, and no answer is under way."""
        conn = self.conn
        return conn.their_state is h11.IDLE and conn.our_state is h11.IDLE and not conn.trailing_data[0]

    def _end_of_hold(self) -> None:
        self._held.clear()
        if self._release is not None:
            self._release.cancel()
            self._release = None

    def _let_go(self) -> None:
        """The rest of a request takes its time: h11 and uvicorn wait for it."""
        data = b"".join(self._held)
        self._end_of_hold()
        self._feed(data)

    def answered(self) -> None:
        """The answer that was under way is written: it waits for another request."""
        self.answer = None
        if self.transport.is_closing():
            return
        if self.closes:
            self.close()
            return
        self._wait()
        if self._held:
            # Not at once: many that are refused would be within one another.
            self._follows = True
            self.loop.call_soon(self._follow)

    def _follow(self) -> None:
        """What came behind a request that is answered now has its turn."""
        self._follows = False
        data = b"".join(self._held)
        self._held.clear()
        if not self.transport.is_closing():
            self.flow.resume_reading()
            self.data_received(data)

    def shutdown(self) -> None:
        """Ends it, with the answer that is under way."""
        if self.answer is not None:
            self.closes = True
        else:
            super().shutdown()

    def resume_writing(self) -> None:
        """Its client has read."""
        super().resume_writing()
        if self.answer is not None:
            self.answer.wake()

    def write(self, data: bytes) -> None:
        """Writes what is framed already; a connection that is lost takes and drops it."""
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def _feed(self, data: bytes) -> None:
        """h11's turn."""
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
        self._unset_keepalive_if_required()
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

    def write_chunks(self, records: Iterable[bytes]) -> None:
        """Writes each as a chunk of the response that has begun, all at once; a lost connection takes and drops them.

        The response must come in chunks: what h11 adds to data is nothing else then.
        """
        self.write(b"".join(map(as_chunk, records)))

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that has been idle for its time, unless a request has begun to arrive.

        uvloop may run a timer that is due before it reads what has arrived by then, and to close a connection with
        unread bytes resets it. What has arrived is read next, which ends the idle time.
        """
        if self.transport.is_closing() or arrived(self.transport) == 0:
            super().timeout_keep_alive_handler()


def connection_of(scope: Mapping[str, Any]) -> Connection | None:
    """The connection of a request, unless another server than run.py's has it."""
    found = scope.get("state", {}).get(KEY)
    return found() if found is not None else None


def in_chunks(scope: Mapping[str, Any], status: int, headers: Iterable[str]) -> bool:
    """Whether h11 sends a response to it in chunks (RFC 9112, 6.1): `headers` are its names, in lower case."""
    return scope["http_version"] == "1.1" and status not in BODILESS and "content-length" not in headers
