"""Memory of a process that runs for long: what its start allocated, and what the C library keeps for reuse.

The C library's goes back to the system where it becomes much.

On a CPU an engine's process allocates and frees tensors of many sizes, and glibc keeps what is freed, in pieces between
what stays: with a hundred thousand small requests the process grows by a quarter, though nothing is left over in it.
(It is no matter of arenas: with one for all threads it grows as much.)
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["freeze", "keep_trimmed", "trimmer"]

log = logging.getLogger(__name__)

PERIOD = 2.0
"""Seconds between two looks."""
RARELY = 30.0
"""Seconds between two times while there is work to do, and before what was in use the last time is looked through
again, for it may be free by now."""
MUCH = 48 << 20
"""By how many bytes the process has grown, at least, when there may be something to give back."""
SHARE = 16
"""And at least by this part of what it has: what a large model costs is not looked through for little."""

STATM = Path("/proc/self/statm")


def freeze() -> None:
    """Leaves what there is out of all further garbage collections; once, when a process has started.

    Modules, options and a tokenizer stay as long as the process does, and a collection that looks through all of them
    again holds up every stream. What is no garbage now is still freed when nobody refers to it any more, but not where
    its parts refer to each other.
    """
    gc.collect()
    gc.freeze()


def trimmer() -> Callable[[int], int] | None:
    """glibc's malloc_trim(3); None where the C library has no such function."""
    try:
        function: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return function


def held() -> int:
    """Bytes of this process' memory that are no file's (proc(5), statm)."""
    _, resident, shared, *_ = STATM.read_text().split()
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def keep_trimmed(busy: Callable[[], bool], period: float = PERIOD, rarely: float = RARELY) -> None:
    """Starts a thread that gives back what is free, where this process has grown since it last did so.

    That takes 2 to 40 ms, the more the busier the machine is, during which whoever allocates from the same arena waits:
    it is done between requests, `busy` permitting, and now and then if there is no such time.
    """
    trim = trimmer()
    if trim is None or not STATM.exists():
        return

    def run() -> None:
        least = last = held()
        trimmed = time.monotonic()
        while True:
            time.sleep(period)
            before, now = held(), time.monotonic()
            long_ago = now - trimmed > rarely
            known = least if long_ago else last
            if before - known > max(MUCH, known // SHARE) and (long_ago or not busy()):
                trim(0)
                last = held()
                taken, trimmed = time.monotonic() - now, now
                log.debug("%.1f MiB given back in %.1f ms", (before - last) / (1 << 20), 1000 * taken)
            last = min(last, before)
            least = min(least, last)

    threading.Thread(target=run, name="lmi-heap", daemon=True).start()
