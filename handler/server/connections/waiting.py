"""The connections of a server that wait for a request: those that have waited longest give way to others."""

from __future__ import annotations

import asyncio
import fcntl
import termios
from array import array
from typing import Any, Protocol

__all__ = ["Waiting", "arrived"]

USED_S = 0.5
"""Seconds that a connection waits before it may give way: its client has just opened it, or just had an answer."""
LOOKS = 16
"""How many connections are looked at, to close one, when another comes."""


class Client(Protocol):
    """A connection."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    connections: set[Any]
    """All of the server's."""

    def close(self) -> None:
        """Closes it, once what was written is sent."""


class Waiting:
    """The connections of a server that wait for a request, those that have waited longest first."""

    def __init__(self) -> None:
        self._since: dict[Client, float] = {}
        """By the event loop's clock."""

    def enter(self, connection: Client) -> None:
        """Takes one that waits from now on."""
        self._since[connection] = connection.loop.time()

    def leave(self, connection: Client) -> None:
        """It has a request, or is gone."""
        self._since.pop(connection, None)

    def make_room(self, newest: Client, limit: int) -> bool:
        """Closes those that have waited longest; whether there are fewer than `limit` then, with the `newest`."""
        for _ in range(LOOKS):
            if len(newest.connections) < limit:
                return True
            oldest, since = next(iter(self._since.items()))
            if oldest is newest or newest.loop.time() - since < USED_S:
                return False
            self.leave(oldest)
            # What nobody has read yet may be a request.
            if arrived(oldest.transport):
                self.enter(oldest)
                continue
            # It is closed, and no longer counted, a turn of the event loop later.
            newest.connections.discard(oldest)
            oldest.close()
        return False


def arrived(transport: asyncio.Transport) -> int:
    """How many bytes have arrived that nobody has read (tcp(7), SIOCINQ)."""
    count = array("i", [0])
    fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.FIONREAD, count)
    return count[0]
