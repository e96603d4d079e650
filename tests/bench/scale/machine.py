"""A host on an acted machine (tests/kit/acted/): which processor each of its processes has, and their memory."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lmi.model.errors import OptionError

from ..cpu import process_roles

__all__ = ["HOSTS", "Machine", "peak_of_host", "place"]

HOSTS = ("server", "worker", "host")
"""What the process that holds the requests is called (tests/bench/cpu.py): of the local server, of DJL."""


@dataclass(frozen=True, slots=True)
class Machine:
    """How many sequences a step serves, and how many seconds it takes."""

    sequences: int
    step: float

    @staticmethod
    def read(text: str) -> Machine:
        """Of SEQUENCES/MILLISECONDS; raises OptionError."""
        try:
            sequences, milliseconds = text.split("/")
            made = Machine(int(sequences), float(milliseconds) / 1000)
        except ValueError:
            made = Machine(0, 0.0)
        if made.sequences < 1 or made.step <= 0:
            raise OptionError(f"--machine: expected SEQUENCES/MILLISECONDS, as 512/10.24, got {text}", "machine")
        return made

    @property
    def rate(self) -> float:
        """Tokens a second, with enough requests."""
        return self.sequences / self.step


def place(pid: int, roles: Sequence[str]) -> None:
    """Puts the processes of these roles on the first processor, all others of the host's and this one on the second.

    Raises OptionError where there is one only.
    """
    first, *others = sorted(os.sched_getaffinity(0) | {*_PLACES})
    if not others:
        raise OptionError("expected two processors")
    _PLACES.update((first, others[0]))
    for process, role in process_roles(pid):
        _pin(process.pid, first if role in roles else others[0])
    _pin(os.getpid(), others[0])


_PLACES: set[int] = set()
"""What this process was allowed before it was placed."""


def _pin(pid: int, processor: int) -> None:
    # A thread at a time; those that come later are where the one is that starts them.
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), {processor})


def peak_of_host(pid: int) -> int:
    """Bytes of the most resident memory that the process that holds the requests has had since the last call."""
    peaks = [0]
    for process, role in process_roles(pid):
        if role in HOSTS:
            place = Path(f"/proc/{process.pid}")
            peaks += [1024 * int(size) for size in re.findall(r"VmHWM:\s*(\d+)", (place / "status").read_text())]
            # From now on (proc_pid_clear_refs(5)).
            (place / "clear_refs").write_text("5")
    return max(peaks)
