"""The output of this process, and of those that it starts meanwhile, taken line by line.

    descriptors 1 and 2 --pipe--> a thread --> take(line)

An engine's processes write to the descriptors that they were started with, for as long as they live: the thread goes on
when this process has its own back.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Sequence

__all__ = ["Capture"]

LINE_END = re.compile(rb"\r\n|\n|\r")
"""Bars of progress end what they write with a return."""
MARK = b"\0lmi: this is taken"
"""What this process writes to see that all before it has been taken."""
MARK_TIMEOUT_S = 1.0
MAX_REST = 1 << 16
"""Bytes that are kept of a line that does not end."""


class Capture:
    """Takes what is written to `descriptors` from its construction on."""

    def __init__(self, descriptors: Sequence[int], take: Callable[[str], None]) -> None:
        """`take` gets each line that is not blank, on a thread of its own."""
        self._take = take
        self._marked = threading.Event()
        self.kept: dict[int, int] = {}
        """By descriptor, one that leads to where it led before; for as long as this process lives."""
        _flush()
        reading, writing = os.pipe()
        for descriptor in descriptors:
            self.kept[descriptor] = os.dup(descriptor)
            os.dup2(writing, descriptor)
        os.close(writing)
        threading.Thread(target=self._read, args=(reading,), name="lmi-output", daemon=True).start()

    def release(self) -> None:
        """Gives this process its descriptors back, once all is taken that has been written so far. Others keep
        theirs."""
        _flush()
        os.write(next(iter(self.kept)), b"\n" + MARK + b"\n")
        self._marked.wait(MARK_TIMEOUT_S)
        for descriptor, kept in self.kept.items():
            os.dup2(kept, descriptor)

    def _read(self, reading: int) -> None:
        rest = b""
        while data := os.read(reading, 1 << 16):
            *lines, rest = LINE_END.split(rest + data)
            rest = rest[-MAX_REST:]
            for line in lines:
                if line == MARK:
                    self._marked.set()
                elif text := line.decode(errors="replace").rstrip():
                    self._take(text)
        os.close(reading)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
