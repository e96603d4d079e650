"""uvicorn's connection, which also lets a stream's records be written to it as they come, and which is not closed on a
request that has just come.

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

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

__all__ = ["Connection", "connection_of", "in_chunks"]

KEY = "lmi.connection"


class Connection(H11Protocol):
    """HTTP/1.1, read and checked by h11."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        # Each of its requests finds it in its state (ASGI's specification, Lifespan State).
        super().__init__(config, server_state, {**app_state, KEY: weakref.ref(self)}, _loop)

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
