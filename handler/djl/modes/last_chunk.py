"""A stream's last chunk reaches Java in one piece.

Java's reader notes that a chunk is the last one before it has read the chunk's length (ai.djl.python 0.34 to 0.36,
`Connection.OutputDecoder.decode`: `hasMoreChunk` is set, then `readBytes` may find too few bytes, and everything but
that is taken back). If a read of the socket ends within those five bytes, it takes the rest for the head of another
answer and has lost its place for good: all later requests of the worker hang or fail.
"""

from __future__ import annotations

import fcntl
import struct
import termios
import time
from typing import Any, Final

__all__ = ["LastChunkApart"]

_LAST: Final = b"\0"
"""The byte that a stream's last chunk begins with; others begin with 1 (djl_python.outputs, `Output.send`)."""
_POLL_S: Final = 0.001


class LastChunkApart:
    """Java's socket, as `Output.send` uses it to write a stream.

    The last chunk, which is empty, is written when Java has read everything before it. So no read ends within it.
    """

    def __init__(self, to_host: Any) -> None:
        """`to_host`: a connected stream socket."""
        self._to_host = to_host

    def sendall(self, data: bytes | bytearray) -> None:
        """Raises OSError if Java has closed the connection."""
        # An answer's head begins with this byte too: nothing is before it then.
        if data.startswith(_LAST):
            while self._unread():
                time.sleep(_POLL_S)
        self._to_host.sendall(data)

    def _unread(self) -> int:
        """What the peer has not read yet: bytes of the kernel's buffer, 0 if there are none (unix(7), SIOCOUTQ)."""
        size: int = struct.unpack("i", fcntl.ioctl(self._to_host, termios.TIOCOUTQ, b"\0" * 4))[0]
        return size
