"""A load generator: so many connections, each sending its next request when the last answer is complete.

What comes in is only kept, with the time of its arrival, while the clock runs; it is taken apart afterwards, so that
the generator costs the machine as little as it can (`Load.cpu` says how much that is).
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

__all__ = ["Answered", "Load", "run_load"]

Arrival = tuple[float, bytes]

LAST_CHUNK = b"\r\n0\r\n\r\n"
"""The end of a body in chunks. JSON has no line breaks of its own that could look like it."""


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
        """The HTTP status."""
        return int(self.arrivals[0][1][9:12])

    def body(self) -> bytes:
        """The body, without the chunks' sizes."""
        head, _, rest = b"".join(data for _, data in self.arrivals).partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" not in head.lower():
            return rest
        parts: list[bytes] = []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            length = int(size, 16)
            parts.append(rest[:length])
            rest = rest[length + 2 :]
        return b"".join(parts)

    def times(self, mark: bytes) -> list[float]:
        """When each record came that begins with `mark`, a string that stands in every record exactly once."""
        return [when for when, data in self.arrivals for _ in range(data.count(mark))]


@dataclass(slots=True)
class Load:
    """What a run of the generator saw."""

    answers: list[Answered]
    seconds: float
    cpu: float
    """CPU seconds of the generator."""


class _Connection(asyncio.Protocol):
    """One keep-alive connection."""

    def __init__(self, take: Callable[[], tuple[int, bytes] | None], done: list[Answered]) -> None:
        self._take = take
        self._done = done
        self._transport: asyncio.Transport
        self._answer: Answered
        self._head = b""
        self._missing: int | None = None
        """Bytes of the body that are still to come; None until its length is known, or where it comes in chunks."""
        self._tail: bytes | None = None
        """The last bytes of a body that comes in chunks."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def _next(self) -> None:
        taken = self._take()
        if taken is None:
            self._transport.close()
            if not self.ended.done():
                self.ended.set_result(None)
            return
        number, request = taken
        self._head, self._missing, self._tail = b"", None, None
        self._answer = Answered(number, time.perf_counter())
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._answer.arrivals.append((time.perf_counter(), data))
        if self._tail is not None:
            self._tail = (self._tail + data)[-len(LAST_CHUNK) :]
        elif self._missing is not None:
            self._missing -= len(data)
        else:
            self._head += data
            head, end, body = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            if length:
                self._missing = int(length[1]) - len(body)
            else:
                self._tail = body[-len(LAST_CHUNK) :]
        if self._missing == 0 or self._tail == LAST_CHUNK:
            self._done.append(self._answer)
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(ConnectionError(f"the connection was closed in the middle of an answer: {exc}"))


async def _run(url: str, bodies: Sequence[bytes], connections: int, headers: dict[str, str]) -> Load:
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        raise ValueError(f"expected a URL that begins with http://, got {url}")
    path = parts.path or "/invocations"
    port = parts.port or 80
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    fixed = f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n{lines}Content-Length: "
    requests = [fixed.encode() + str(len(body)).encode() + b"\r\n\r\n" + body for body in bodies]
    waiting = iter(enumerate(requests))
    done: list[Answered] = []
    loop = asyncio.get_running_loop()
    cpu = time.process_time()
    start = time.perf_counter()
    opened = [
        await loop.create_connection(lambda: _Connection(lambda: next(waiting, None), done), parts.hostname, port)
        for _ in range(connections)
    ]
    await asyncio.gather(*(connection.ended for _, connection in opened))
    seconds = max(answer.ended for answer in done) - start
    return Load(sorted(done, key=lambda answer: answer.number), seconds, time.process_time() - cpu)


def run_load(url: str, bodies: Sequence[object], connections: int, headers: dict[str, str] | None = None) -> Load:
    """Posts `bodies` to `url` as JSON over so many connections and returns when all are answered."""
    return asyncio.run(_run(url, [json.dumps(body).encode() for body in bodies], connections, headers or {}))
