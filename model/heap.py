"""Memory that the C library keeps for reuse goes back to the system from time to time.

An engine's process allocates and frees tensors of many sizes, and glibc keeps what is freed, in pieces between what
stays: with a hundred thousand small requests the process grows by a fifth, though nothing is left over in it. (It is
no matter of arenas: with one for all threads it grows as much.)
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable

__all__ = ["keep_trimmed", "trimmer"]

log = logging.getLogger(__name__)

PERIOD = 10.0
"""Seconds between two times."""
LITTLE = 0.01
"""The share of a core below which a process has done too little for there to be anything to give back."""


def trimmer() -> Callable[[int], int] | None:
    """glibc's malloc_trim(3); None where the C library has no such function."""
    try:
        function: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return function


def keep_trimmed(period: float = PERIOD) -> None:
    """Starts a thread that gives free memory back every `period` seconds in which this process was at work.

    It takes 2 to 40 ms, the more the busier the process is, during which only those wait who allocate from the very
    arena that is being looked at.
    """
    trim = trimmer()
    if trim is None:
        return

    def run() -> None:
        spent = time.process_time()
        while True:
            time.sleep(period)
            now = time.process_time()
            if now - spent > LITTLE * period:
                began = time.perf_counter()
                trim(0)
                log.debug("free memory given back in %.1f ms", 1000 * (time.perf_counter() - began))
            spent = now

    threading.Thread(target=run, name="lmi-heap", daemon=True).start()
