"""One thread that enforces time limits: no request needs a thread or a timer of its own.

A sweep ends what is overdue and returns when to run again. It may be late only if something can become overdue sooner
than it said, which is not so where everything that it looks at has the same time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

__all__ = ["Sweep", "Watch"]

log = logging.getLogger(__name__)

Sweep = Callable[[float], float]
"""Takes the time (time.monotonic) and returns when to run next."""
MAX_INTERVAL_S = 3600.0
"""The most seconds between two runs: threads cannot wait for any length of time."""


class Watch:
    """Runs sweeps until it is closed."""

    def __init__(self, *sweeps: Sweep) -> None:
        self._sweeps = sweeps
        self._closed = threading.Event()

    def start(self) -> None:
        """Starts the thread."""
        threading.Thread(target=self._run, name="lmi-watch", daemon=True).start()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()

    def _run(self) -> None:
        pause = 0.0
        while not self._closed.wait(pause):
            now = time.monotonic()
            next_run = min(self._run_sweep(sweep, now) for sweep in self._sweeps)
            pause = min(max(next_run - time.monotonic(), 0.0), MAX_INTERVAL_S)

    def _run_sweep(self, sweep: Sweep, now: float) -> float:
        try:
            return sweep(now)
        except Exception:
            log.exception("checking the time limits failed")
            return now + 1.0
