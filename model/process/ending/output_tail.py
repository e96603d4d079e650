"""The output of processes that are started meanwhile: passed on, and searched for the error that ended them.

    descriptors 1 and 2 --pipe--> a thread --> where they led before
                                           --> the last lines

vLLM's client says of a core that failed no more than "see above". What is above, the core has written; and where one of
several workers fails, the others and the core then fail for want of it: the cause is what the first one wrote.
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

from ...vllm_messages import START_FAILED, own_words, says_nothing
from .start_errors import without_text

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11

__all__ = ["OutputTail"]

MAX_LINES = 4000
"""Enough for the tracebacks of a core and of eight workers."""
_PREFIX = re.compile(r"^(?P<process>\([\w ]+ pid=\d+\) )?((ERROR|CRITICAL) [\d-]+ [\d:]+ \[[^\]]*\] )?")
_ERROR = re.compile(r"^(?P<kind>([A-Za-z_][\w.]*)?(Error|Exception|Interrupt))(: (?P<text>.+))?$")
_PLACE = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$')


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

    def failure(self, timeout: float = 0.2) -> str:
        """The last error that says something of the process that was the first to say that it failed its start, without
        its class if that says less; empty if there is none.
        """
        time.sleep(timeout)
        lines = list(self._lines)
        for start in (index for index, line in enumerate(lines) if line.endswith(tuple(START_FAILED))):
            prefix = _prefix(lines[start])
            if found := _last_error([line[len(prefix) :] for line in lines[start:] if line.startswith(prefix)]):
                return found
        return ""

    def cause(self, timeout: float = 0.2) -> str:
        """The same, and where there is none, the last error of all lines that says something."""
        return self.failure(timeout) or _last_error([line[len(_prefix(line)) :] for line in list(self._lines)])

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


def _prefix(line: str) -> str:
    """What vLLM's log has before a line's text: the process, and for errors the time and the place."""
    found = _PREFIX.match(line)
    return found[0] if found else ""


def _last_error(lines: list[str]) -> str:
    """The last one that says something, among lines without prefixes; of one without a text the statement."""
    for index in range(len(lines) - 1, -1, -1):
        found = _ERROR.match(lines[index])
        if found is None or says_nothing(found["text"] or ""):
            continue
        if found["text"]:
            text = own_words(found["text"])
            plain = found["kind"] in {"ValueError", "RuntimeError", "Exception"}
            return text if plain or text != found["text"] else found[0]
        if place := _place_before(lines, index):
            return without_text(found["kind"], *place)
    return ""


def _place_before(lines: list[str], index: int) -> tuple[str, str, str, str] | None:
    """The last place of the traceback that ends at a line: statement, file, number of the line, function."""
    for start in range(index - 1, -1, -1):
        if place := _PLACE.match(lines[start]):
            shown = [line for line in lines[start + 1 : index] if line.strip(" ^~")]
            return " ".join(shown), place["file"], place["line"], place["function"]
    return None
