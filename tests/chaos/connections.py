"""Connections that are misused beside a storm's requests, as an open port meets them.

    Crowd(port, seed).press(over)   until `over` is set; then it waits until each has ended
    Crowd.wrong()                   those that the server neither answered nor closed in time

What a connection is misused for is a row of MISUSES; IDLE more send nothing at all.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from ..kit.hosts.host import eventually
from ..kit.hosts.limits import DISCARD_TIMEOUT_S, HEAD_S, KEEP_ALIVE_S, PATIENCE_S
from .cases import ENDLESS
from .wire import request_bytes

__all__ = ["MISUSES", "QUICK", "Crowd"]

IDLE = 10_000
A_SECOND = 200
"""How many idle ones are opened, where others have been closed."""
EACH = 4
"""Clients for each misuse, one connection at a time."""
LATE_S = 15.0
"""How much later than the server's own limit an end may be seen on busy cores."""
ANSWER_S = 180.0
DEAF = 5
"""Requests of one who never reads."""


class HungError(Exception):
    """The server has neither answered nor closed it in time."""


class Peer:
    """One connection, in the hands of somebody who misuses it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> bool:
        """Whether the server still takes it."""
        try:
            await self._loop.sock_sendall(self.sock, data)
        except OSError:
            return False
        return True

    async def to_the_end(self, seconds: float) -> bytes:
        """What the server says until it closes the connection; raises HungError where it has not by then."""
        parts: list[bytes] = []

        async def read() -> None:
            with suppress(ConnectionError):
                while part := await self._loop.sock_recv(self.sock, 1 << 16):
                    parts.append(part)

        try:
            await asyncio.wait_for(read(), seconds)
        except asyncio.TimeoutError:
            raise HungError(f"open after {seconds:g} s, {b''.join(parts)[:200]!r}") from None
        return b"".join(parts)

    async def drip(self, data: bytes, seconds: float) -> bytes:
        """Sends a byte a second, over and over, and reads beside it: `to_the_end`."""
        reading = asyncio.ensure_future(self.to_the_end(seconds))
        sent = 0
        while not reading.done() and await self.send(data[sent % len(data) :][:1]):
            sent += 1
            await asyncio.wait([reading], timeout=1)
        return await reading

    def reset(self) -> None:
        """Closes it with RST, whatever is on its way."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def asked(tokens: int, *, stream: bool) -> bytes:
    """A good request."""
    given = {"max_new_tokens": tokens, "ignore_eos_token": True}
    body = json.dumps({"inputs": ENDLESS, "parameters": given, "stream": stream}).encode()
    return request_bytes("/invocations", {}, body)


async def slow_head(peer: Peer, rng: random.Random) -> bytes:
    await peer.send(b"POST /invocations HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
    return await peer.drip(b"abcdefgh", HEAD_S + LATE_S)


async def slow_body(peer: Peer, rng: random.Random) -> bytes:
    length = rng.choice([1000, 100_000, 1_000_000])
    head = request_bytes("/invocations", {}, b"").replace(b"Content-Length: 0", f"Content-Length: {length}".encode())
    await peer.send(head + b'{"inputs": "')
    return await peer.drip(b"abcdefgh", PATIENCE_S + DISCARD_TIMEOUT_S + LATE_S)


async def half_closed(peer: Peer, rng: random.Random) -> bytes:
    """It has said all that it will, and reads on."""
    await peer.send(asked(rng.choice([1, 50]), stream=rng.random() < 0.5))
    with suppress(OSError):
        peer.sock.shutdown(socket.SHUT_WR)
    return await peer.to_the_end(ANSWER_S)


async def resetting(peer: Peer, rng: random.Random) -> bytes:
    await peer.send(asked(200, stream=rng.random() < 0.7))
    await asyncio.sleep(rng.random() ** 3)
    peer.reset()
    return b""


async def deaf(peer: Peer, rng: random.Random) -> bytes:
    """It asks for much, and never reads."""
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    await peer.send(asked(200, stream=True) * DEAF)
    await asyncio.sleep(rng.uniform(5, 20))
    peer.reset()
    return b""


GARBAGE: tuple[Callable[[random.Random], bytes], ...] = (
    lambda rng: rng.randbytes(rng.randrange(1, 5000)),
    lambda rng: rng.randbytes(200_000),
    lambda rng: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(508),  # TLS, RFC 8446, 4.1.2
    lambda rng: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),  # RFC 9113, 3.4
    lambda rng: b"GET / HTTP/9.9\r\n\r\n",
    lambda rng: b"\r\n" * 5000,
    lambda rng: b"GET /ping HTTP/1.1\r\n" + b"A: b\r\n" * 50_000 + b"\r\n",
    lambda rng: b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n",
    lambda rng: b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
    lambda rng: b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
    lambda rng: b"POST /invocations HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    lambda rng: b"POST /invocations HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 5000,
    lambda rng: b"POST /invocations HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
)


async def garbage(peer: Peer, rng: random.Random) -> bytes:
    """What is no HTTP is refused, or closed as a head that never ends."""
    await peer.send(rng.choice(GARBAGE)(rng))
    return await peer.to_the_end(max(HEAD_S, KEEP_ALIVE_S) + LATE_S)


MISUSES: dict[str, Callable[[Peer, random.Random], Awaitable[bytes]]] = {
    "slow head": slow_head,
    "slow body": slow_body,
    "half-closed": half_closed,
    "reset": resetting,
    "never reads": deaf,
    "garbage": garbage,
}
QUICK = ("half-closed", "reset")
"""Those that end within a few seconds."""


@dataclass
class Crowd:
    """Those who misuse connections of the server on `port`."""

    port: int
    seed: int
    idle: int = IDLE
    misuses: tuple[str, ...] = tuple(MISUSES)
    ends: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """By misuse: the status that the server said first, "closed" where it said nothing, or "hung"."""
    most: int = 0
    """The most idle connections that were open at the same time."""
    _said: list[str] = field(default_factory=list[str])

    async def press(self, over: asyncio.Event) -> None:
        """Misuses connections until `over` is set, and waits for the ends of all."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        try:
            clients = (self._misuse(name, number, over) for name in self.misuses for number in range(EACH))
            await asyncio.gather(*clients, self._wait_idly(over))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    async def _misuse(self, name: str, number: int, over: asyncio.Event) -> None:
        rng = random.Random(f"{self.seed}/{name}/{number}")
        while not over.is_set():
            with await self._open() as sock:
                try:
                    said = await MISUSES[name](Peer(sock), rng)
                except HungError as error:
                    self.ends[name, "hung"] += 1
                    self._said.append(f"{name}: {error}")
                else:
                    status = said.split(b" ", 2)[1].decode() if said.startswith(b"HTTP/1.1 ") else "closed"
                    self.ends[name, status if name not in ("reset", "never reads") else "left"] += 1
            await asyncio.sleep(rng.random())

    async def _open(self) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        return sock

    async def _wait_idly(self, over: asyncio.Event) -> None:
        """Keeps `idle` connections open on which nothing is sent; each that is closed is opened anew, in its time."""
        loop, open_ = asyncio.get_running_loop(), set[socket.socket]()

        def readable(sock: socket.socket) -> None:
            # Nothing was asked, so it is the end, or uvicorn's 503.
            with suppress(ConnectionError):
                if sock.recv(1 << 16):
                    return
            loop.remove_reader(sock)
            open_.discard(sock)
            sock.close()
            self.ends["idle", "closed"] += 1

        async def none_open() -> bool:
            return not open_

        while not over.is_set():
            for _ in range(min(A_SECOND // 10, self.idle - len(open_))):
                sock = await self._open()
                open_.add(sock)
                loop.add_reader(sock, readable, sock)
            self.most = max(self.most, len(open_))
            await asyncio.sleep(0.1)
        with suppress(AssertionError):
            await eventually(none_open, KEEP_ALIVE_S + LATE_S)
        for sock in open_:
            loop.remove_reader(sock)
            sock.close()
        if open_:
            self.ends["idle", "hung"] += len(open_)
            self._said.append(f"{len(open_)} idle connections are open {KEEP_ALIVE_S + LATE_S:g} s after the storm")

    @property
    def asked(self) -> int:
        """Requests that may have been good ones: the server may have seen them, and may have answered."""
        times = {"slow body": 1, "half-closed": 1, "reset": 1, "never reads": DEAF, "garbage": 1}
        return sum(times.get(name, 0) * count for (name, _), count in self.ends.items())

    def wrong(self) -> list[str]:
        """What should not have happened, in words."""
        never = [name for name in self.misuses if not any(misuse == name for misuse, _ in self.ends)]
        return [*self._said, *(f"{name}: no connection came to its end" for name in never)]

    def table(self) -> str:
        """Markdown: how the connections ended."""
        lines = ["| connections | end | number |", "| --- | --- | --- |"]
        lines += [f"| {name} | {end} | {count:,} |" for (name, end), count in sorted(self.ends.items())]
        return "\n".join(lines)
