"""Messages between the host's process and the engine's, over a socket pair.

A message is a big-endian 32-bit length and so many bytes of msgpack. Everything that is new after a step goes in one
message: one system call, one wake-up, whatever the number of sequences.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Generic, TypeVar

import msgspec

from .engine import EngineInfo, EngineStats
from .events import Event
from .generation import Generation
from .options import Settings

__all__ = ["Abort", "Add", "Broken", "Channel", "FromEngine", "Ready", "Setup", "Stats", "Step", "ToEngine"]


class Setup(msgspec.Struct, array_like=True, frozen=True, tag="setup"):
    """The first message: what to start."""

    settings: Settings


class Add(msgspec.Struct, array_like=True, frozen=True, tag="add"):
    """Start a generation."""

    number: int
    generation: Generation


class Abort(msgspec.Struct, array_like=True, frozen=True, tag="abort"):
    """End generations."""

    numbers: tuple[int, ...]


ToEngine = Setup | Add | Abort


class Ready(msgspec.Struct, array_like=True, frozen=True, tag="ready"):
    """The engine is up."""

    info: EngineInfo


class Broken(msgspec.Struct, array_like=True, frozen=True, tag="broken"):
    """The engine could not start, or can go on no longer. The last message."""

    kind: str
    message: str
    param: str | None = None


class Step(msgspec.Struct, array_like=True, frozen=True, tag="step"):
    """What a step brought, by generation."""

    events: list[tuple[int, Event]]


class Stats(msgspec.Struct, array_like=True, frozen=True, tag="stats"):
    """How busy the engine is: about once a second while it has something to do, and once when it has no more."""

    stats: EngineStats


FromEngine = Ready | Broken | Step | Stats

Received = TypeVar("Received")

_LENGTH = struct.Struct(">I")
_BUFFER = 1 << 18


class Channel(Generic[Received]):
    """One end of the socket pair. One thread may send and another receive; further senders need a lock of their own."""

    def __init__(self, sock: socket.socket, received: object) -> None:
        self._sock = sock
        self._file = sock.makefile("rb", buffering=_BUFFER)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Received] = msgspec.msgpack.Decoder(received)

    def send(self, message: ToEngine | FromEngine) -> None:
        """Sends a message; raises OSError when the other side is gone."""
        buffer = bytearray(_LENGTH.size)
        self._encoder.encode_into(message, buffer, _LENGTH.size)
        _LENGTH.pack_into(buffer, 0, len(buffer) - _LENGTH.size)
        self._sock.sendall(buffer)

    def receive(self) -> Received | None:
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
        return self._decoder.decode(body)

    def close(self) -> None:
        """Closes this end; a `receive` that is waiting returns None."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError, ValueError):
            self._file.close()
        self._sock.close()
