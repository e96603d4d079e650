"""Requests in the form that nearly all have, from a connection's bytes to its bytes, with no task and no ASGI between.

    bytes --head_of--> a path of the dialects, headers, a body of known length --Direct.begin--> Answer
    Answer.wake: records --> the connection;   all else that HTTP allows --> h11, uvicorn, Starlette (app.py)

Of 540 microseconds that a request took the local server, h11, uvicorn and Starlette took 400 (docs/performance.md).
What this does not know, or would refuse, has not been touched: it goes the other way whole.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from uvicorn.protocols.http.h11_impl import STATUS_PHRASES
from uvicorn.server import ServerState

from ...exchange import Exchange
from ...headers import REQUEST_ID_HEADER, headers_of

__all__ = ["BODILESS", "Answer", "Direct", "Head", "Wire", "as_chunk", "head_of", "take_ready"]

log = logging.getLogger(__name__)

LONGEST = 64 << 10
"""Bytes of the longest head, and of the longest body, that are taken."""

TOGETHER = 16 << 10
"""Bytes of records in one write: it gets no further one once it has so many."""

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
HEAD = re.compile(
    rb"POST (/[!-~]*) HTTP/1\.1\r\n((?:" + TOKEN + rb":[\t -~\x80-\xff]*\r\n)+)\r\n",
)
"""RFC 9112, 3 and 5, without folded lines."""
BODILESS = (204, 304)
FRAMING = frozenset(("connection", "transfer-encoding"))
"""Headers that say how a response is framed, which is not a formatter's to say."""
OTHERWISE = frozenset((b"transfer-encoding", b"expect", b"upgrade", b"origin", b"te", b"trailer"))
"""Headers that ask for more than an answer: other framing, an interim response, another protocol, CORS."""


@dataclass(frozen=True, slots=True)
class Head:
    """A request's, with the place of its body."""

    path: str
    headers: Mapping[str, str]
    """By lower-case name."""
    begin: int
    end: int


def head_of(data: bytes, paths: Mapping[bytes, str]) -> Head | None:
    """The head of a request to one of `paths` that begins with `data`; None for one that is not complete, or not as
    simple.
    """
    found = HEAD.match(data)
    if found is None or found.end() > LONGEST or (path := paths.get(found[1])) is None:
        return None
    lines = found[2].split(b"\r\n")
    headers: dict[bytes, bytes] = {}
    for line in lines[:-1]:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip(b" \t")
    length = headers.get(b"content-length", b"")
    if (
        len(headers) < len(lines) - 1
        or b"host" not in headers
        or not length.isdigit()
        or not OTHERWISE.isdisjoint(headers)
        or headers.get(b"connection", b"keep-alive").lower() != b"keep-alive"
        or len(length) > DIGITS
        or int(length) > LONGEST
    ):
        return None
    named = {name.decode("ascii"): value.decode("latin-1") for name, value in headers.items()}
    return Head(path, named, found.end(), found.end() + int(length))


DIGITS = 9
"""Of a body's length."""


def as_chunk(data: bytes) -> bytes:
    """A chunk (RFC 9112, 7.1). Empty data is none, since an empty chunk ends the response."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def take_ready(exchange: Exchange, *, merge: bool) -> list[bytes]:
    """Takes records to write together, with `merge` as one; without it about TOGETHER bytes at most.

    The others wait in the exchange: a client that never reads is cut off while records wait for it.
    """
    if merge:
        return [exchange.take_all()] if exchange.records else []
    taken: list[bytes] = []
    size = 0
    while exchange.records and size < TOGETHER:
        record = exchange.records.popleft()
        size += len(record)
        taken.append(record)
    return taken


class Wire(Protocol):
    """The connection of an answer."""

    loop: asyncio.AbstractEventLoop
    server_state: ServerState
    answer: Answer | None
    """What is under way."""
    closes: bool
    """Whether it ends with the answer that is under way."""

    @property
    def full(self) -> bool:
        """Whether its client should read before more is written."""
        ...

    def write(self, data: bytes) -> None:
        """Writes what is framed already."""

    def answered(self) -> None:
        """All is written."""

    def close(self) -> None:
        """Closes it, once what was written is sent."""


class Direct(Protocol):
    """What takes requests from a connection."""

    paths: Mapping[bytes, str]
    """Those that it takes, as they stand in targets."""

    def begin(self, connection: Wire, head: Head, body: bytes) -> Answer | None:
        """Starts what a request asks for; None: it is to go the other way."""


class Answer:
    """Writes an exchange's answer to its connection, as StreamResponse does (streams.py)."""

    __slots__ = (
        "_begun",
        "_connection",
        "_ended",
        "_left",
        "_merge",
        "_noted",
        "_request_id",
        "_timer",
        "_written",
        "exchange",
    )

    def __init__(
        self,
        connection: Wire,
        request_id: str,
        timeout: float,
        noted: Callable[[int, float], None],
        *,
        merge: bool,
    ) -> None:
        """`noted` is told the status and the seconds that it took, before the last of it is written."""
        self.exchange: Exchange
        self._connection = connection
        self._request_id = request_id
        self._noted = noted
        self._merge = merge
        self._begun = monotonic()
        self._written = False
        """Whether the response has begun."""
        self._left: int | None = None
        """Bytes that are still to come of a body whose length is told; None: it comes in chunks."""
        self._ended = False
        self._timer = connection.loop.call_later(timeout, self._too_late)

    def wake(self) -> None:
        """Writes what is ready. Raises nothing: others' records are behind it."""
        if self._ended:
            return
        try:
            self._write()
        except Exception:
            log.exception("request %s: its response could not be sent", self.exchange.request_id)
            self._break_off()

    def leave(self) -> None:
        """Nobody reads it any more."""
        if not self._ended:
            self._end()
            self.exchange.abort()

    def _write(self) -> None:
        """What is ready together at once: each write is a call of the kernel's."""
        connection, records = self._connection, self.exchange.records
        more = True
        while more:
            pieces: list[bytes] = []
            try:
                self._take(pieces)
            finally:
                if pieces:
                    connection.write(b"".join(pieces))
            if self._ended:
                connection.answered()
                return
            more = bool(pieces and records) and not connection.full

    def _take(self, pieces: list[bytes]) -> None:
        """Adds what is ready, and has ended with the last of it."""
        exchange, connection = self.exchange, self._connection
        finished = exchange.finished
        records = exchange.records
        if not self._written:
            if not finished and not (records and exchange.call.streamed):
                return
            reply = exchange.call.reply
            headers = {name.lower(): value for name, value in headers_of(reply).items()}
            if not exchange.call.streamed or (reply.status != 200 and finished and len(records) <= 1):
                body = exchange.take_all()
                headers.pop("content-length", None)
                pieces += (self._head(headers, b"content-length: %d\r\n" % len(body)), body)
                self._written = True
                self._end()
                return
            self._written = True
            if reply.status in BODILESS or "content-length" in headers:
                # A formatter of the user's says so.
                self._left = int(headers.get("content-length", 0))
                pieces.append(self._head(headers, b""))
            else:
                pieces.append(self._head(headers, b"transfer-encoding: chunked\r\n"))
        if not connection.full:
            for record in take_ready(exchange, merge=self._merge):
                if self._left is None:
                    pieces.append(as_chunk(record))
                elif len(record) > self._left:
                    raise ValueError(f"{len(record)} bytes, expected {self._left} (content-length)")
                else:
                    self._left -= len(record)
                    pieces.append(record)
        if finished and not records:
            if self._left:
                raise ValueError(f"the end, expected {self._left} bytes more (content-length)")
            if self._left is None:
                pieces.append(b"0\r\n\r\n")
            # Before it goes: who has the response finds it counted.
            self._end()

    def _head(self, headers: Mapping[str, str], framing: bytes) -> bytes:
        """The response's head; `headers` have lower-case names."""
        reply = self.exchange.call.reply
        if self._connection.closes:
            framing += b"connection: close\r\n"
        elif self._written:
            # A stream's: the minimal chat document, Response Headers.
            framing += b"connection: keep-alive\r\n"
        given = {**headers, REQUEST_ID_HEADER: self._request_id}
        lines = [b"%b: %b\r\n" % pair for pair in self._connection.server_state.default_headers]
        lines += [f"{name}: {value}\r\n".encode("latin-1") for name, value in given.items() if name not in FRAMING]
        return b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (
            reply.status, STATUS_PHRASES[reply.status], b"".join(lines), framing,
        )  # fmt: skip

    def _end(self) -> None:
        self._ended = True
        self._timer.cancel()
        # As Starlette counts what nobody has answered.
        self._noted(self.exchange.call.reply.status if self._written else 500, monotonic() - self._begun)

    def _break_off(self) -> None:
        if not self._ended:
            self._end()
        self.exchange.abort()
        self._connection.close()

    def drop(self) -> None:
        """It has never been opened."""
        self._ended = True
        self._timer.cancel()

    def _too_late(self) -> None:
        log.warning(
            "request %s: its connection is closed, the client did not read the response for too long",
            self.exchange.request_id,
        )
        self._break_off()
