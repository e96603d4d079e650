"""Messages between the host's process and the engine's, over a socket pair.

A message is a big-endian 32-bit length and so many bytes of msgpack. Everything that is new after a step goes in one
message: one system call, one wake-up, whatever the number of sequences.
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

from ..adapters.adapter import Adapter
from ..engine import EngineInfo, EngineStats
from ..errors import GenerationError, LmiError, error_of_kind
from ..events import EngineEvent, Failed
from ..generation import Generation
from ..options import Settings

__all__ = [
    "ENCODE_ERRORS",
    "Abort",
    "AdapterOutcome",
    "Add",
    "BadMessage",
    "Channel",
    "EngineFailed",
    "Fault",
    "FromEngine",
    "Ready",
    "Release",
    "RemoveAdapter",
    "SetAdapter",
    "Start",
    "Stats",
    "Step",
    "ToEngine",
    "readable_step",
    "sendable",
]


class Start(msgspec.Struct, array_like=True, frozen=True, tag="setup"):
    """The first message: what to start, and the adapters that are registered."""

    settings: Settings
    adapters: tuple[Adapter, ...] = ()


class Add(msgspec.Struct, array_like=True, frozen=True, tag="add"):
    """Start a generation."""

    number: int
    generation: Generation


class Release(msgspec.Struct, array_like=True, frozen=True, tag="release"):
    """Start generations that are held back."""

    numbers: tuple[int, ...]


class Abort(msgspec.Struct, array_like=True, frozen=True, tag="abort"):
    """End generations."""

    numbers: tuple[int, ...]


class SetAdapter(msgspec.Struct, array_like=True, frozen=True, tag="adapter"):
    """Register an adapter, or pin one that is registered. AdapterOutcome answers it."""

    adapter: Adapter


class RemoveAdapter(msgspec.Struct, array_like=True, frozen=True, tag="unadapter"):
    """Unload an adapter once the generations that were sent before this have ended."""

    key: str


ToEngine = Start | Add | Release | Abort | SetAdapter | RemoveAdapter


class BadMessage(NamedTuple):
    """A message that was received whole and cannot be decoded, which its sender did not check (msgspec checks only what
    it decodes).
    """

    number: int | None
    """Of the generation that it was to start."""
    request_id: str
    """Of that generation's request."""
    error: msgspec.DecodeError
    body: bytes


class Fault(msgspec.Struct, array_like=True, frozen=True):
    """An error, for the other process (errors.error_of_kind)."""

    kind: str
    message: str
    param: str | None = None

    @classmethod
    def of(cls, error: LmiError) -> Fault:
        """The fault that tells of `error`."""
        return cls(error.kind, error.message, error.param)

    @property
    def error(self) -> LmiError:
        """The error that it tells of."""
        return error_of_kind(self.kind, self.message, self.param)


class Ready(msgspec.Struct, array_like=True, frozen=True, tag="ready"):
    """The engine is up."""

    info: EngineInfo
    adapter_faults: dict[str, Fault] = {}
    """Of the adapters in Start those that could not be loaded, by key."""


class AdapterOutcome(msgspec.Struct, array_like=True, frozen=True, tag="outcome"):
    """What became of a SetAdapter, by key."""

    key: str
    fault: Fault | None = None


class EngineFailed(msgspec.Struct, array_like=True, frozen=True, tag="broken"):
    """The engine could not start, or can go on no longer. The last message."""

    kind: str
    message: str
    param: str | None = None


class Step(msgspec.Struct, array_like=True, frozen=True, tag="step"):
    """What a step brought, by generation."""

    events: Sequence[tuple[int, EngineEvent]]


class Stats(msgspec.Struct, array_like=True, frozen=True, tag="stats"):
    """How busy the engine is: about once a second while it has something to do, and once when it has no more."""

    stats: EngineStats


FromEngine = Ready | EngineFailed | Step | Stats | AdapterOutcome


class _RawStep(msgspec.Struct, array_like=True, frozen=True, tag="step"):
    """A Step whose events are not decoded yet."""

    events: list[tuple[int, msgspec.Raw]]


_RAW_STEP = msgspec.msgpack.Decoder(_RawStep)
_EVENT: msgspec.msgpack.Decoder[EngineEvent] = msgspec.msgpack.Decoder(EngineEvent)

Received = TypeVar("Received")

ENCODE_ERRORS = (TypeError, ValueError, OverflowError, RecursionError)
"""What encoding a message raises: a value of another type, a number of more than 64 bits, half a surrogate pair."""

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


def readable_step(message: BadMessage) -> tuple[Step, list[int]] | None:
    """A step in which some events cannot be decoded, with failures in their places, and the generations that these end.

    None where it is no step, or one of which nobody knows whose its events are.
    """
    try:
        raw = _RAW_STEP.decode(message.body)
    except msgspec.DecodeError:
        return None
    events: list[tuple[int, EngineEvent]] = []
    failed: list[int] = []
    for number, event in raw.events:
        try:
            events.append((number, _EVENT.decode(event)))
        except msgspec.DecodeError as error:  # noqa: PERF203 - each event by itself
            events.append((number, _unsendable(error)))
            failed.append(number)
    return Step(events), failed


def sendable(events: Sequence[tuple[int, EngineEvent]]) -> tuple[list[tuple[int, EngineEvent]], dict[int, Exception]]:
    """Events of which some cannot be encoded, with failures in their places, and why the generations that these end
    failed."""
    result: list[tuple[int, EngineEvent]] = []
    failed: dict[int, Exception] = {}
    for number, event in events:
        try:
            msgspec.msgpack.encode(event)
            result.append((number, event))
        except ENCODE_ERRORS as error:  # noqa: PERF203 - each event by itself
            result.append((number, _unsendable(error)))
            failed[number] = error
    return result, failed


def _unsendable(error: Exception) -> Failed:
    return Failed.of(GenerationError(f"the engine's output could not be sent: {error}"))


def _bad(body: bytes, error: msgspec.DecodeError) -> BadMessage:
    """With the generation that it was to start, as far as that can be told."""
    try:
        tag, number, generation, *_ = msgspec.msgpack.decode(body)
    except (msgspec.DecodeError, TypeError, ValueError):
        return BadMessage(None, "", error, body)
    if tag != "add" or not isinstance(number, int):
        return BadMessage(None, "", error, body)
    request_id = generation.get("request_id") if isinstance(generation, dict) else None
    return BadMessage(number, request_id if isinstance(request_id, str) else "", error, body)
