"""How long the start takes, stage by stage, in the host's process and in the engine's.

    mark("imports") ... mark("options") ... stages() --> {"imports": 0.2, "options": 0.01, ...}

A stage is what lies between a mark and the one before it; the first one begins with the process itself. What happens
while another process starts takes no time of its own:

    begin("engine's process") ... mark("code of the user's") ... mark("engine's process")   one stage, the last
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["begin", "mark", "shown", "stages"]

_found: dict[str, float] = {}


def _begun() -> float:
    """When this process began, on the clock of `time.perf_counter`; now where the system does not tell (not Linux)."""
    now = time.perf_counter()
    try:
        # The 22nd field, in ticks since the machine was started; the second may have blanks in it (proc(5)).
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[19])
        return now - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return now


_last = _begun()
_open: str | None = None


def begin(stage: str) -> None:
    """What passes from now on is this stage, whatever else is marked before its own mark."""
    global _open
    _open = stage


def mark(stage: str) -> None:
    """What has passed since the last mark was this stage."""
    global _last, _open
    if _open not in (None, stage):
        return
    _open = None
    now = time.perf_counter()
    _found[stage] = _found.get(stage, 0.0) + now - _last
    _last = now


def stages() -> dict[str, float]:
    """Seconds by stage, in their order, up to the last mark."""
    return dict(_found)


def shown(found: Mapping[str, float]) -> str:
    """For a log line."""
    return ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in found.items())
