"""One connection between leader and follower: whole messages, a limit on silence, signs of life of our own."""

from __future__ import annotations

import contextlib
import socket
import threading

import msgspec

from ..errors import LmiError
from .messages import Beat, Ended, Message

__all__ = ["Connection", "NodeLostError"]

LONGEST = 1 << 20
"""Bytes of a message; facts of a model in a thousand files are a tenth of it."""
BEATS = 4
"""How many signs of life are sent in the time after which silence counts as the end."""
LONGEST_PAUSE_S = 1.0
"""Seconds between two of them at most."""

_decoder = msgspec.json.Decoder(Message)


class NodeLostError(LmiError):
    """The other host is gone, or speaks something else; the message says how, and begins with its name."""


class Connection:
    """To one other host. `name` is what messages call it."""

    def __init__(self, sock: socket.socket, name: str, timeout: float) -> None:
        """`timeout`: seconds of silence after which the other one counts as lost."""
        self.name = name
        self._sock = sock
        self._timeout = timeout
        self._reader = sock.makefile("rb")
        self._sending = threading.Lock()
        self._closed = threading.Event()

    def beat(self) -> None:
        """Sends signs of life from now on, until the connection is closed."""
        threading.Thread(target=self._beat, name="lmi-beat", daemon=True).start()

    def send(self, message: Message) -> None:
        """Sends a message; raises NodeLostError."""
        try:
            with self._sending:
                self._sock.settimeout(self._timeout)
                self._sock.sendall(msgspec.json.encode(message) + b"\n")
        except OSError as error:
            raise NodeLostError(f"{self.name} closed its connection ({error})") from error

    def receive(self, unless: threading.Event | None = None) -> Message:
        """The next message that is no sign of life; raises NodeLostError where none comes in time, or none that can be
        read, and once `unless` is set.
        """
        while True:
            message = self._receive()
            if unless is not None and unless.is_set():
                raise NodeLostError(f"{self.name} is not waited for any more")
            if not isinstance(message, Beat):
                return message

    def close(self, cause: str | None = None) -> None:
        """Closes it, and tells the other one before, if there is a cause."""
        if self._closed.is_set():
            return
        if cause is not None:
            with contextlib.suppress(NodeLostError):
                self.send(Ended(cause))
        self._closed.set()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._reader.close()
        self._sock.close()

    def _receive(self) -> Message:
        try:
            self._sock.settimeout(self._timeout)
            line = self._reader.readline(LONGEST)
        except TimeoutError:
            silent = f"{self.name} has been silent for {self._timeout:g} s (option.node_timeout)"
            raise NodeLostError(silent) from None
        except (OSError, ValueError) as error:
            raise NodeLostError(f"{self.name} closed its connection ({error})") from error
        if not line:
            raise NodeLostError(f"{self.name} closed its connection")
        try:
            message: Message = _decoder.decode(line)
        except msgspec.DecodeError as error:
            raise NodeLostError(f"{self.name} sent something else than lmi's messages ({error})") from error
        return message

    def _beat(self) -> None:
        pause = min(LONGEST_PAUSE_S, self._timeout / BEATS)
        # Who receives notices it too.
        with contextlib.suppress(NodeLostError):
            while not self._closed.wait(pause):
                self.send(Beat())
