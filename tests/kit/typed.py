"""A command on a terminal of its own, as a person sits at it: what it writes is waited for, and answered by keys."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11

__all__ = ["CTRL_C", "CTRL_D", "ENTER", "Typed"]

ENTER, CTRL_C, CTRL_D = "\r", "\x03", "\x04"
ROWS, COLUMNS = 40, 160
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""What colours, moves the cursor, or erases."""


class Typed:
    """A running command; at its end it is killed if it still runs."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """`environment` is put over this process' one."""
        self.raw = ""
        """All that it has written."""
        self._seen = 0
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            # A child of the test's: nothing of pytest's may run here.
            try:
                os.execvpe(command[0], [*command], {**os.environ, "TERM": "xterm-256color", **(environment or {})})
            finally:
                os._exit(127)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self._terminal)

    @property
    def text(self) -> str:
        """All that it has written, without what colours and moves."""
        return _SEQUENCE.sub("", self.raw).replace("\r\n", "\n")

    def expect(self, text: str, timeout: float = 60.0) -> None:
        """Waits until it has written `text`, behind what was waited for last."""
        deadline = time.monotonic() + timeout
        while (found := self.text.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, f"expected {text!r}, got {self.text[self._seen :]!r}"
            assert self._read(), f"ended without {text!r}: {self.text[self._seen :]!r}"
        self._seen = found + len(text)

    def keys(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def interrupt(self, text: str, timeout: float = 60.0) -> None:
        """Presses Ctrl-C where a line is read, until `text` is written.

        Python's `input` misses a signal that comes in the moment before it waits (readline's `select`): the next one
        wakes it. What was typed before must have been echoed: the terminal drops what nobody has read, and readline,
        which was told of it, would wait for it whatever signals come.
        """
        deadline = time.monotonic() + timeout
        while True:
            self.keys(CTRL_C)
            try:
                return self.expect(text, 2.0)
            except AssertionError:
                if time.monotonic() > deadline or not self._read():
                    raise

    def end(self, timeout: float = 60.0) -> int:
        """Waits for its end; its exit status, as a shell gives it."""
        deadline = time.monotonic() + timeout
        while self._read():
            assert time.monotonic() < deadline, f"still runs: {self.text[self._seen :]!r}"
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _read(self) -> bool:
        """What is there within a moment; False once nobody has the terminal open any more."""
        if not select.select([self._terminal], [], [], 0.1)[0]:
            return True
        try:
            data = os.read(self._terminal, 1 << 16)
        except OSError:
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)
