"""A lock between processes (flock). It goes with the process that has it, but one that is stopped keeps it.

So nobody waits for it without a limit. The system's own wait has none: it is asked again and again instead.
"""

from __future__ import annotations

import fcntl
import math
import time

__all__ = ["lock_file", "try_lock_file"]

TIMEOUT_S = 30.0
"""Seconds that somebody waits: longer than it takes to write a large value, which is done under the lock."""
MIN_PAUSE_S, MAX_PAUSE_S = 0.0005, 0.02
"""Seconds between two tries, each time twice as long."""


def lock_file(descriptor: int, how: int = fcntl.LOCK_EX, until: float = math.inf) -> None:
    """Has the lock of an open file (flock), until that is closed; `how`: LOCK_EX or LOCK_SH.

    Raises TimeoutError after TIMEOUT_S, or at `until` (time.monotonic): once that is over it is not even tried.
    """
    until = min(until, time.monotonic() + TIMEOUT_S)
    pause = MIN_PAUSE_S
    while (left := until - time.monotonic()) > 0:
        if try_lock_file(descriptor, how):
            return
        time.sleep(min(pause, left))
        pause = min(2 * pause, MAX_PAUSE_S)
    raise TimeoutError(f"its lock could not be had within {TIMEOUT_S:g} seconds")


def try_lock_file(descriptor: int, how: int = fcntl.LOCK_EX) -> bool:
    """Whether the lock is had. Never waits."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
