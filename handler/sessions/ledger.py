"""How many sessions there are and how many bytes they hold: a file in their folder, which is the lock too.

Several processes share it. It may be wrong after a process has died half-way, until somebody counts again
(store.py: sweep).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..file_lock import lock_file

__all__ = ["Ledger", "locked"]

NAME = ".ledger"
WIDTH = 20
"""Digits of each number: the file never grows, so that a full disk does not matter."""


@dataclass(slots=True)
class Ledger:
    """What the file says; what is changed is written when the lock is given back."""

    number: int
    size: int
    """Bytes."""
    known: bool
    """Whether somebody has counted."""


@contextlib.contextmanager
def locked(folder: Path, until: float = math.inf) -> Iterator[Ledger]:
    """The ledger of a folder, for one thread of one process at a time.

    Waits, but not after `until` (time.monotonic) and never for long (file_lock.py); raises OSError, as TimeoutError.
    """
    descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        lock_file(descriptor, until=until)
        text = os.pread(descriptor, 2 * WIDTH, 0)
        numbers = [int(part) for part in text.split() if part.isdigit()]
        known = len(text) == 2 * WIDTH and len(numbers) == 2
        ledger = Ledger(numbers[0], numbers[1], known) if known else Ledger(0, 0, known)
        try:
            yield ledger
        finally:
            written = f"{max(ledger.number, 0):>{WIDTH}}{max(ledger.size, 0):>{WIDTH}}".encode()
            if ledger.known and written != text:
                os.pwrite(descriptor, written, 0)
    finally:
        # Which gives the lock back.
        os.close(descriptor)
