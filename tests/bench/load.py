"""A load generator: so many connections, each sending its next request when the last answer is complete.

What comes in is only kept, with the time of its arrival, while the clock runs; it is taken apart afterwards, so that
the generator costs the machine as little as it can (`Load.cpu` says how much that is). For the same reason it is a
loop around a selector: an event loop's streams cost four times as much a record.
"""

from __future__ import annotations

import gc
import json
import re
import selectors
import socket
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate
from urllib.parse import urlsplit

from lmi.model.errors import OptionError

from .process import make_room

__all__ = ["Answered", "Load", "run_load"]

Arrival = tuple[float, bytes]

LAST_CHUNK = b"\r\n0\r\n\r\n"
"""The end of a body in chunks. JSON has no line breaks of its own that could look like it."""

SILENCE = 120.0
"""Seconds without a single byte on any connection after which a server is taken to hang."""


@dataclass(slots=True)
class Answered:
    """One request's answer as it arrived."""

    number: int
    sent: float
    arrivals: list[Arrival] = field(default_factory=list[Arrival])

    @property
    def ended(self) -> float:
        """When the last byte was there."""
        return self.arrivals[-1][0]

    @property
    def status(self) -> int:
        return int(b"".join(data for _, data in self.arrivals)[9:12])

    def body(self) -> bytes:
        """The body, without the chunks' sizes."""
        head, _, rest = b"".join(data for _, data in self.arrivals).partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" not in head.lower():
            return rest
        parts: list[bytes] = []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            length = int(size.partition(b";")[0], 16)
            parts.append(rest[:length])
            rest = rest[length + 2 :]
        return b"".join(parts)

    def times(self, mark: re.Pattern[bytes]) -> list[float]:
        """When each record came that `mark` is found in, once in every record."""
        ends = list(accumulate(len(data) for _, data in self.arrivals))
        everything = b"".join(data for _, data in self.arrivals)
        # The arrival that completes the mark is the first whose end reaches the mark's.
        return [self.arrivals[bisect_left(ends, found.end())][0] for found in mark.finditer(everything)]


@dataclass(slots=True)
class Load:
    """What a run of the generator saw."""

    answers: list[Answered]
    seconds: float
    cpu: float
    """CPU seconds of the generator."""


class _Connection:
    """One keep-alive connection."""

    __slots__ = ("_answer", "_head", "_missing", "_tail", "_target", "_waiting", "done", "socket")

    def __init__(self, target: tuple[str, int], waiting: Iterator[tuple[int, bytes]], done: list[Answered]) -> None:
        self.socket = socket.create_connection(target, timeout=SILENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.done = done
        self._target = target
        self._waiting = waiting
        self._answer: Answered
        self._head = b""
        self._missing: int | None = None
        """Bytes of the body that are still to come; None until its length is known, or where it comes in chunks."""
        self._tail: bytes | None = None
        """The last bytes of a body that comes in chunks."""

    def send(self) -> bool:
        """Sends the next request; False if there is none."""
        taken = next(self._waiting, None)
        if taken is None:
            return False
        number, request = taken
        self._head, self._missing, self._tail = b"", None, None
        self._answer = Answered(number, time.perf_counter())
        self.socket.sendall(request)
        return True

    def receive(self) -> bool:
        """Takes what has come; True if it completes the answer."""
        data = self.socket.recv(1 << 16)
        if not data:
            came = b"".join(data for _, data in self._answer.arrivals)
            after = time.perf_counter() - self._answer.sent
            raise ConnectionError(
                f"the connection to {self._target} was closed in the middle of an answer, {after:.3f} s "
                f"after request {self._answer.number}; of it came {came[:500]!r}"
            )
        self._answer.arrivals.append((time.perf_counter(), data))
        if self._tail is not None:
            self._tail = (self._tail + data)[-len(LAST_CHUNK) :]
        elif self._missing is not None:
            self._missing -= len(data)
        else:
            self._head += data
            head, end, body = self._head.partition(b"\r\n\r\n")
            if not end:
                return False
            self._read_head(head.lower(), body)
        if self._missing == 0 or self._tail == LAST_CHUNK:
            self.done.append(self._answer)
            return True
        return False

    def _read_head(self, head: bytes, body: bytes) -> None:
        if b"\r\ntransfer-encoding: chunked" in head:
            # An empty body is nothing but the last chunk: the head's own line break stands before it.
            self._tail = (b"\r\n" + body)[-len(LAST_CHUNK) :]
        elif length := re.search(rb"\r\ncontent-length: *(\d+)", head):
            self._missing = int(length[1]) - len(body)
        else:
            raise ConnectionError(f"an answer whose end nothing tells: {head[:300].decode(errors='replace')}")

    def close(self) -> None:
        self.socket.close()


def run_load(url: str, bodies: Sequence[object], connections: int) -> Load:
    """Posts `bodies` to `url` as JSON over so many connections and returns when all are answered.

    All of them are open before the first request is sent. Raises OptionError for a URL that cannot be meant, and for
    more connections than this process may have; OSError for a server that closes a connection or hangs.
    """
    make_room(connections)
    target, requests = _prepare(url, bodies)
    waiting = iter(enumerate(requests))
    done: list[Answered] = []
    gc.collect()
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        opened = [_Connection(target, waiting, done) for _ in range(min(connections, len(requests)))]
        for connection in opened:
            stack.callback(connection.close)
        # Nothing that is allocated while the clock runs can be garbage in cycles.
        gc.disable()
        stack.callback(gc.enable)
        cpu = time.process_time()
        start = time.perf_counter()
        for connection in opened:
            connection.send()
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        _serve(selector)
        seconds = max(answer.ended for answer in done) - start
        return Load(sorted(done, key=lambda answer: answer.number), seconds, time.process_time() - cpu)


def _serve(selector: selectors.BaseSelector) -> None:
    """Until every connection has had its last answer."""
    while selector.get_map():
        events = selector.select(SILENCE)
        if not events:
            raise TimeoutError(f"the server has sent nothing for {SILENCE:.0f} s")
        for key, _ in events:
            connection: _Connection = key.data
            if connection.receive() and not connection.send():
                selector.unregister(key.fileobj)


def _prepare(url: str, bodies: Sequence[object]) -> tuple[tuple[str, int], list[bytes]]:
    """Where they go, and the requests."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        raise OptionError(f"--url: expected a URL that begins with http://, got {url}", "url")
    path = (parts.path or "/invocations") + (f"?{parts.query}" if parts.query else "")
    fixed = f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\nContent-Length: "
    encoded = [json.dumps(body).encode() for body in bodies]
    requests = [fixed.encode() + str(len(body)).encode() + b"\r\n\r\n" + body for body in encoded]
    return (parts.hostname, parts.port or 80), requests
