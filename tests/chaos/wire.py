"""A raw HTTP client that behaves as well or as badly as it is told to.

Wire.ask(request, Manner) -> Got        one connection, kept open between requests
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["GOOD", "Got", "Manner", "Wire", "request_bytes"]

End = Literal["whole", "cut", "left", "hang"]


@dataclass(frozen=True)
class Manner:
    """How a client reads."""

    slow: bool = False
    """It takes what comes in small pieces, with pauses, through a small window."""
    pause: float = 0.0
    """Seconds between two reads."""
    leave: int | None = None
    """It goes away once so many bytes of the body have come; -1: before there is an answer at all."""


GOOD = Manner()
SMALL = 2048
"""Bytes of a slow reader's window."""


@dataclass
class Got:
    """What came of a request. Times are of time.monotonic."""

    sent: float
    ended: float = 0.0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    end: End = "whole"
    """cut: the server closed the connection before the end; hang: nothing more came for too long."""


def request_bytes(path: str, headers: dict[str, str], body: bytes, method: str = "POST") -> bytes:
    """A request as it is sent."""
    named = {"Host": "127.0.0.1", "Content-Type": "application/json", **headers, "Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


class Wire:
    """One client's connection."""

    def __init__(self, port: int, timeout: float = 180.0) -> None:
        self._port = port
        self._timeout = timeout
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes, manner: Manner = GOOD) -> Got:
        """Sends a request and reads its answer. Raises nothing that a server can cause."""
        if manner.slow:
            await self.close()
        while True:
            used = self._streams is not None
            got = Got(time.monotonic())
            try:
                await asyncio.wait_for(self._ask(request, manner, got), self._timeout)
            except asyncio.TimeoutError:
                got.end = "hang"
            except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
                got.end = "cut"
            got.ended = time.monotonic()
            closing = got.headers.get("connection", "").lower() == "close"
            if got.end != "whole" or closing or manner.slow:
                await self.close()
            # A connection that was kept may have been closed by the server in the meantime: as any client, once more.
            if not (used and got.end == "cut" and not got.status):
                return got

    async def _ask(self, request: bytes, manner: Manner, got: Got) -> None:
        if self._streams is None:
            self._streams = await _connect(self._port, manner.slow)
        reader, writer = self._streams
        writer.write(request)
        await writer.drain()
        if manner.leave is not None and manner.leave < 0:
            await asyncio.sleep(manner.pause)
            got.end = "left"
            return
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        got.status = int(head[0].split()[1])
        pairs = (line.split(":", 1) for line in head[1:] if line)
        got.headers = {name.lower(): value.strip() for name, value in pairs}
        chunked = "chunked" in got.headers.get("transfer-encoding", "").lower()
        missing = 0 if chunked else int(got.headers.get("content-length", "0"))
        body = bytearray()
        try:
            while chunked or missing:
                if manner.leave is not None and len(body) >= manner.leave:
                    got.end = "left"
                    return
                if chunked:
                    size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
                    body += (await reader.readexactly(size + 2))[:-2]
                    if not size:
                        return
                else:
                    part = await reader.readexactly(min(missing, 512 if manner.slow else missing))
                    missing -= len(part)
                    body += part
                if manner.slow:
                    await asyncio.sleep(manner.pause)
        finally:
            got.body = bytes(body)

    async def close(self) -> None:
        """Closes the connection, at once."""
        if self._streams is not None:
            _, writer = self._streams
            self._streams = None
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


async def _connect(port: int, slow: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sock = socket.socket()
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if slow:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        return await asyncio.open_connection(sock=sock, limit=SMALL if slow else 1 << 20)
    except BaseException:
        sock.close()
        raise
