"""What Java sends, read from its socket with few system calls.

djl_python asks the socket for each number and each word by itself: seven system calls for each running request with
each call of a rolling batch, 9 µs a token where this takes 3. Here its reader asks a buffer, so all that reads must do
so here: bytes of the next message may be in it already.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BufferedReader, FileIO
from typing import Any

from djl_python import inputs

__all__ = ["read", "replace_reader"]

CHUNK = 1 << 16
"""Bytes that the socket is asked for at a time."""

_read = inputs.Input.read
_buffers: dict[Any, _Buffer] = {}
"""By socket, of which a worker has one."""


class _Buffer:
    """A socket that has been read ahead of, as djl_python's reader asks one."""

    def __init__(self, conn: Any) -> None:
        self.recv: Callable[[int], bytes] = BufferedReader(FileIO(conn.fileno(), closefd=False), CHUNK).read


def read(self: Any, conn: Any) -> None:
    """`djl_python.Input.read`: fills an empty Input with the next message; raises ValueError at the end of them."""
    buffer = _buffers.get(conn)
    if buffer is None:
        buffer = _buffers[conn] = _Buffer(conn)
    _read(self, buffer)


def replace_reader() -> None:
    """Lets djl_python read this way."""
    inputs.Input.read = read
