"""The output of processes that are started meanwhile: passed on, and searched for the error that ended them.

    descriptors 1 and 2 --pipe--> a thread --> where they led before
                                           --> the last lines

vLLM's client says of a core that failed no more than "see above". What is above, the core has written.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING

from ...vllm_messages import says_nothing

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11

__all__ = ["OutputTail"]

MAX_LINES = 400
_PREFIX = re.compile(r"^(\([\w ]+ pid=\d+\) )?((ERROR|CRITICAL) [\d-]+ [\d:]+ \[[^\]]*\] )?")
_ERROR = re.compile(r"^(?P<kind>([A-Za-z_][\w.]*)?(Error|Exception|Interrupt)): (?P<text>.+)$")


class OutputTail:
    """A context manager: reads the output of processes that are started within it for as long as they live, and of this
    one only until it exits."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._kept: dict[int, int] = {}

    def __enter__(self) -> Self:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor in (1, 2):
            kept = os.dup(descriptor)
            reading, writing = os.pipe()
            os.dup2(writing, descriptor)
            os.close(writing)
            self._kept[descriptor] = kept
            threading.Thread(target=self._pass_on, args=(reading, os.dup(kept)), name="lmi-output", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, kept in self._kept.items():
            os.dup2(kept, descriptor)
            os.close(kept)

    def cause(self, timeout: float = 0.2) -> str:
        """The last error among the lines that says something, without its class if that says less; else empty."""
        time.sleep(timeout)
        for line in reversed(list(self._lines)):
            found = _ERROR.match(_PREFIX.sub("", line))
            if found and not says_nothing(found["text"]):
                return found["text"] if found["kind"] in {"ValueError", "RuntimeError", "Exception"} else found[0]
        return ""

    def _pass_on(self, reading: int, to: int) -> None:
        rest = b""
        while data := os.read(reading, 1 << 16):
            # Nobody may listen any more.
            with contextlib.suppress(OSError):
                os.write(to, data)
            *lines, rest = (rest + data).split(b"\n")
            self._lines.extend(line.decode(errors="replace") for line in lines)
            rest = rest[-(1 << 16) :]
        os.close(reading)
        os.close(to)
