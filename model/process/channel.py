"""One end of the socket pair between the host's process and the engine's: messages in order, as fast as they are read.

    host: EngineClient's thread --Channel.receive--> message, message, ...
          or a host's event loop --LoopReading, Channel.receive_ready--> message, message, ...

A message is a big-endian 32-bit length and so many bytes of msgpack (messages.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from .messages import Add, BadMessage, FromEngine, ToEngine

__all__ = ["Channel", "LoopReading"]

log = logging.getLogger(__name__)

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
        self._usual = self._buffer = memoryview(bytearray(_BUFFER))
        """What has come, from `_begin` to `_end`, and has not been received yet."""
        self._begin = self._end = 0
        self._length: int | None = None
        """Of the message whose head has been received, and nothing else."""
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(sock, select.POLLOUT)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Received] = msgspec.msgpack.Decoder(received)
        self._sending = threading.Lock()
        self._backlog: deque[_Waiting] = deque()

    def send(self, message: ToEngine | FromEngine) -> None:
        """Sends a message, as soon as the other side has room for it; raises OSError when it is gone."""
        with self._sending:
            self._send_all(self._encoded(message))

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
            # Whoever receives sees the end too.
            with contextlib.suppress(OSError):
                self._send_all(rest)
            with self._sending:
                self._backlog.popleft()
                if not self._backlog:
                    return

    def _send_all(self, data: bytearray) -> None:
        """Sends all of it, and waits meanwhile. An event loop that reads the socket may have made it one that does not
        wait by itself (libuv's uv_poll_init does).
        """
        rest = memoryview(data)
        while rest:
            self._wait(self._writable)
            with contextlib.suppress(BlockingIOError):
                rest = rest[self._sock.send(rest, socket.MSG_DONTWAIT) :]

    def _wait(self, poll: select.poll) -> None:
        """Until the socket is ready, or closed: then its descriptor may be somebody else's."""
        if self._sock.fileno() >= 0:
            poll.poll()

    def _encoded(self, message: ToEngine | FromEngine) -> bytearray:
        buffer = bytearray(_LENGTH.size)
        self._encoder.encode_into(message, buffer, _LENGTH.size)
        _LENGTH.pack_into(buffer, 0, len(buffer) - _LENGTH.size)
        return buffer

    def receive(self) -> Received | BadMessage | None:
        """The next message; None when the other side is gone."""
        return self._next(0)

    def receive_ready(self) -> list[Received | BadMessage]:
        """The messages that have come, without waiting; raises EOFError when the other side is gone."""
        messages: list[Received | BadMessage] = []
        try:
            while not messages or self._begin < self._end:
                message = self._next(socket.MSG_DONTWAIT)
                if message is None:
                    break
                messages.append(message)
        except BlockingIOError:
            return messages
        if not messages:
            raise EOFError
        return messages

    def _next(self, flags: int) -> Received | BadMessage | None:
        length = self._length
        if length is None:
            head = self._take(_LENGTH.size, flags)
            if head is None:
                return None
            (length,) = _LENGTH.unpack(head)
            self._length = length
        body = self._take(length, flags)
        if body is None:
            return None
        self._length = None
        message: Received | BadMessage
        try:
            message = self._decoder.decode(body)
        except msgspec.DecodeError as error:
            message = _bad(bytes(body), error)
        if self._buffer is not self._usual:
            # The room of a long one is not kept.
            self._make_room(0)
        return message

    def _take(self, size: int, flags: int) -> memoryview | None:
        """So many of the bytes that come next, until the next call; None when the other side is gone.

        Without a file around the socket, which takes as long for a small message as all else that is done with it.
        Raises BlockingIOError where they have not come, with MSG_DONTWAIT among `flags`.
        """
        if self._end - self._begin < size:
            self._make_room(size)
            while self._end < size:
                if not flags:
                    # `recv` by itself is woken, too, whenever the other side has read something.
                    self._wait(self._readable)
                try:
                    came = self._sock.recv_into(self._buffer[self._end :], 0, flags)
                except BlockingIOError:
                    if flags:
                        raise
                    continue
                except OSError:
                    return None
                if not came:
                    return None
                self._end += came
        begin = self._begin
        self._begin += size
        return self._buffer[begin : self._begin]

    def _make_room(self, size: int) -> None:
        """Moves what is there to the beginning of a buffer of at least so many bytes."""
        there, room = self._end - self._begin, self._buffer
        if size > len(room):
            room = memoryview(bytearray(size))
        elif size <= _BUFFER:
            room = self._usual
        if self._begin or room is not self._buffer:
            room[:there] = self._buffer[self._begin : self._end]
            self._buffer, self._begin, self._end = room, 0, there

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._sock.fileno()

    def close(self) -> None:
        """Closes this end; a `receive` that is waiting returns None."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


class LoopReading(Generic[Received]):
    """Has an event loop receive the messages of a channel in the place of a thread, which waits meanwhile.

    What is written on the loop then costs a step neither a thread's wake-up nor the interpreter's lock
    (docs/performance.md, Tried).
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        channel: Channel[Received],
        take: Callable[[Received | BadMessage], bool],
    ) -> None:
        """`take` gets each message on the loop, and says whether another one is wanted."""
        self._loop = loop
        self._channel = channel
        self._take = take
        self._descriptor: int | None = None
        """While the loop looks at it."""
        self._ended = False
        self._over = threading.Event()

    def run(self) -> bool:
        """Waits until the loop receives no more; whether nobody is to."""
        try:
            self._loop.call_soon_threadsafe(self._begin)
        except RuntimeError:
            # It is closed.
            return False
        self._over.wait()
        return self._ended

    def stop(self) -> None:
        """Has the loop receive no more, soon. For any thread."""
        try:
            self._loop.call_soon_threadsafe(self._leave)
        except RuntimeError:
            self._over.set()

    def receive(self) -> None:
        """Receives what has come, before the loop looks for it. On the loop."""
        if self._descriptor is not None:
            self._receive()

    def _begin(self) -> None:
        if not self._over.is_set():
            self._descriptor = self._channel.fileno()
            self._loop.add_reader(self._descriptor, self._receive)
            self._receive()

    def _receive(self) -> None:
        try:
            for message in self._channel.receive_ready():
                if not self._take(message):
                    self._end()
                    return
        except EOFError:
            self._end()
        except Exception:
            log.exception("reading from the engine's process failed")
            self._end()

    def _end(self) -> None:
        self._ended = True
        self._leave()

    def _leave(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            self._descriptor = None
        self._over.set()


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
