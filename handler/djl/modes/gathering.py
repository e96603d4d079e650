"""Streams of text come in fewer and longer events where the host is behind (option.merge_records).

What an event costs Java does not depend on its length (docs/performance.md, Behind Java), and that Java's front end is
behind no worker is told: what a worker writes is read at once and waits there. So the measure is how much of all cores
Java's process takes. While that is more than BUSY, text gathers in the engine's process for longer and longer.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from ....model.engine import Engine

__all__ = ["Gathering"]

BUSY: Final = 0.15
"""Which part of the cores Java may take before text gathers. Below half of that it gathers for less long."""
WINDOW_S: Final = 0.5
STEP_MS: Final = 20
MAX_MS: Final = 40
"""Whoever reads along hardly sees it, and steps of a host that is behind take about as long."""


class Gathering:
    """For how long the text of one worker's streams gathers. On one thread."""

    def __init__(self, engine: Engine, host: int) -> None:
        """`host`: Java's process id."""
        self._engine = engine
        self._usage = Path(f"/proc/{host}/stat")
        self._cores = len(os.sched_getaffinity(0))
        self._looked_at = 0.0
        self._used_s = 0.0
        self.milliseconds = 0
        """For how long it gathers now."""

    def look(self) -> None:
        """To be called again and again while streams run; looks twice a second. Raises nothing."""
        passed = (now := time.monotonic()) - self._looked_at
        if passed < WINDOW_S:
            return
        before, self._used_s, self._looked_at = self._used_s, self._cpu_seconds(), now
        milliseconds = self.milliseconds
        if passed > 2 * WINDOW_S:
            # No stream has run meanwhile.
            milliseconds = 0
        elif (share := (self._used_s - before) / passed / self._cores) > BUSY:
            milliseconds = min(milliseconds + STEP_MS, MAX_MS)
        elif share < BUSY / 2:
            milliseconds = max(milliseconds - STEP_MS, 0)
        if milliseconds != self.milliseconds:
            self.milliseconds = milliseconds
            self._engine.gather(milliseconds / 1000)

    def _cpu_seconds(self) -> float:
        """What Java's process has used so far (proc(5): utime and stime); 0 where that cannot be read."""
        try:
            fields = self._usage.read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
