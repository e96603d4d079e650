"""One end of the socket pair between the host's process and the engine's: messages in order, as fast as they are read.

A message is a big-endian 32-bit length and so many bytes of msgpack (messages.py).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from .messages import Add, BadMessage, FromEngine, ToEngine

__all__ = ["Channel"]

Received = TypeVar("Received")

_LENGTH = struct.Struct(">I")
_BUFFER = 1 << 18


class _Waiting(NamedTuple):
    """A message, or what is left of it, that the other side has no room for yet."""

    data: bytearray
    number: int | None
    """Of the generation that it is to start."""


class Channel(Generic[Received]):
    """One end of the socket pair. Any thread may send; one receives."""

    def __init__(self, sock: socket.socket, received: object) -> None:
        self._sock = sock
        self._file = sock.makefile("rb", buffering=_BUFFER)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Received] = msgspec.msgpack.Decoder(received)
        self._sending = threading.Lock()
        self._backlog: deque[_Waiting] = deque()

    def send(self, message: ToEngine | FromEngine) -> None:
        """Sends a message, as soon as the other side has room for it; raises OSError when it is gone."""
        with self._sending:
            self._sock.sendall(self._encoded(message))

    def post(self, message: ToEngine | FromEngine) -> None:
        """Sends a message without waiting: what the other side has no room for yet, a thread sends later, in order.

        Raises OSError when the other side is known to be gone. Not to be mixed with `send` once it has been called.
        """
        with self._sending:
            rest = self._encoded(message)
            if not self._backlog:
                with contextlib.suppress(BlockingIOError):
                    rest = rest[self._sock.send(rest, socket.MSG_DONTWAIT) :]
                if not rest:
                    return
                threading.Thread(target=self._catch_up, name="lmi-send", daemon=True).start()
            self._backlog.append(_Waiting(rest, message.number if isinstance(message, Add) else None))

    def send_last(self, message: ToEngine | FromEngine, timeout: float = 2.0) -> None:
        """Posts a message after which the process may end: waits until all is sent, or for `timeout` seconds."""
        self.post(message)
        deadline = time.monotonic() + timeout
        while self._backlog and time.monotonic() < deadline:
            time.sleep(0.005)

    def withdraw(self, numbers: Sequence[int]) -> Sequence[int]:
        """Drops what has been posted to start generations, as far as it has not begun to be sent; gives the others."""
        if not self._backlog:
            return numbers
        with self._sending:
            # The first one is being sent.
            waiting = list(self._backlog)
            dropped = {one.number for one in waiting[1:]}.intersection(numbers)
            if dropped:
                self._backlog = deque(one for one in waiting if one.number not in dropped)
        return [number for number in numbers if number not in dropped]

    def _catch_up(self) -> None:
        """Sends the backlog. Its first message stays in it until it is sent, so that later messages stay behind it."""
        while True:
            with self._sending:
                rest = self._backlog[0].data
            try:
                self._sock.sendall(rest)
            except OSError:
                # Whoever receives sees the end too.
                rest = bytearray()
            with self._sending:
                self._backlog.popleft()
                if not self._backlog:
                    return

    def _encoded(self, message: ToEngine | FromEngine) -> bytearray:
        buffer = bytearray(_LENGTH.size)
        self._encoder.encode_into(message, buffer, _LENGTH.size)
        _LENGTH.pack_into(buffer, 0, len(buffer) - _LENGTH.size)
        return buffer

    def receive(self) -> Received | BadMessage | None:
        """The next message; None when the other side is gone."""
        try:
            head = self._file.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                return None
            (length,) = _LENGTH.unpack(head)
            body = self._file.read(length)
        except (OSError, ValueError):
            return None
        if len(body) < length:
            return None
        try:
            return self._decoder.decode(body)
        except msgspec.DecodeError as error:
            return _bad(body, error)

    def close(self) -> None:
        """Closes this end; a `receive` that is waiting returns None."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError, ValueError):
            self._file.close()
        self._sock.close()


def _bad(body: bytes, error: msgspec.DecodeError) -> BadMessage:
    """With the generation that it was to start, as far as that can be told."""
    try:
        tag, number, generation, *_ = msgspec.msgpack.decode(body)
    except (msgspec.DecodeError, TypeError, ValueError):
        return BadMessage(None, "", error, body)
    if tag != Add.__struct_config__.tag or not isinstance(number, int):
        return BadMessage(None, "", error, body)
    request_id = generation.get("request_id") if isinstance(generation, dict) else None
    return BadMessage(number, request_id if isinstance(request_id, str) else "", error, body)
