"""What Java sends, read from its socket with few system calls.

djl_python asks the socket for each number and each word by itself: three system calls for each running request with
each call of a rolling batch, 8 µs a token. Here it is asked for all that is there, and messages are taken from that.
So bytes of the next message may have been read already, and all that reads must do so here: djl_python's reader is
replaced only where it is the one that is known, by its source; any other stays as it is.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import select
import struct
from typing import Any
from weakref import WeakKeyDictionary

from djl_python import inputs

__all__ = ["read", "replace_reader"]

log = logging.getLogger(__name__)

KNOWN = "9564bead4317695105fdbdf07fe6d685e4cb4421ef91fe7252cee167d3774fac"
"""Of djl_python 0.34.0 and 0.36.0."""

CHUNK = 1 << 16
"""Bytes that the socket is asked for at a time, at least."""

NAMES = [f"batch_{index:03d}.data" for index in range(1000)]
"""Of the content items of a rolling batch's requests (RollingBatch.run), each as long as any other."""

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")

_RUNNING = b"".join(_INT.pack(len(name)) + name.encode() + _INT.pack(0) for name in NAMES)
"""Requests that run already: items without content."""
_ITEM = len(_RUNNING) // len(NAMES)

_waiting: WeakKeyDictionary[Any, tuple[bytearray, select.poll]] = WeakKeyDictionary()
"""Of each socket what has been read of a message that nobody has asked for yet, and what waits for more."""


def replace_reader() -> bool:
    """Lets djl_python read this way, where its own reader is the known one."""
    parts: tuple[Any, ...] = (
        inputs.PairList,
        inputs.Input.read,
        inputs.retrieve_buffer,
        inputs.retrieve_int,
        inputs.retrieve_short,
        inputs.retrieve_utf8,
    )
    if inputs.Input.read is read:
        return True
    try:
        source = "".join(map(inspect.getsource, parts))
    except OSError:
        source = ""
    known = hashlib.sha256(source.encode()).hexdigest() == KNOWN
    if known:
        inputs.Input.read = read
    else:
        log.info("djl_python's reader is another one than in 0.34.0 and 0.36.0, and is left as it is")
    return known


def read(self: Any, conn: Any) -> None:
    """`djl_python.Input.read`: fills an empty Input with the next message; raises ValueError at the end of them."""
    found = _waiting.get(conn)
    if found is None:
        readable = select.poll()
        readable.register(conn, select.POLLIN)
        found = _waiting[conn] = bytearray(), readable
    data, readable = found
    while (size := _take(self, data)) > len(data):
        # `recv` by itself is woken, too, whenever Java has read something: with each frame of a stream.
        readable.poll()
        more = conn.recv(max(CHUNK, size - len(data)))
        if not more:
            raise ValueError("Connection disconnected")
        data += more
    del data[:size]
    self.function_name = self.properties.get("handler")


def _take(self: Any, data: bytearray) -> int:
    """Fills an Input with the message that `data` begins with and returns its size.

    Where `data` is too short it returns a larger number than it has, and the Input stays empty: 16-bit counts of
    properties, a key and a value each, and of content items, before each text or value its 32-bit length; -1: no text
    (ai.djl.python 0.36.0, Connection.RequestEncoder).
    """
    keys: list[str | None] = []
    spans: list[slice] = []
    end, at = len(data), 2

    def text() -> str | None:
        nonlocal at
        start = at + 4
        length = _INT.unpack_from(data, at)[0]
        at = start if length < 0 else start + length
        if at > end:
            raise _TooShortError
        return None if length < 0 else data[start:at].decode()

    try:
        pairs = [(text(), text()) for _ in range(_SHORT.unpack_from(data)[0])]
        items = _SHORT.unpack_from(data, at)[0]
        at += 2
        running = _running(data, at, items)
        at += running * _ITEM
        for _ in range(items - running):
            keys.append(text())
            start = at + 4
            at = start + _INT.unpack_from(data, at)[0]
            if at > end:
                raise _TooShortError
            spans.append(slice(start, at))
    except struct.error:
        return end + 1
    except _TooShortError:
        return at
    self.properties.update(pairs)
    # Not before all of it is there: until then what has come is gone through again and again.
    self.content.keys += NAMES[:running]
    self.content.values += [b""] * running
    for key, span in zip(keys, spans, strict=True):
        self.content.add(key=key, value=data[span])
    return at


def _running(data: bytearray, at: int, items: int) -> int:
    """How many of the items at `at` are those of a rolling batch's requests that run already, which come first.

    They are all of most calls, hundreds, and the same again and again: 0.6 µs each one by one.
    """
    found, step = 0, 512
    while step:
        if (after := found + step) <= min(items, len(NAMES)):
            start, end = found * _ITEM, after * _ITEM
            if data[at + start : at + end] == _RUNNING[start:end]:
                found = after
        step //= 2
    return found


class _TooShortError(Exception):
    """What has come ends within a field."""
