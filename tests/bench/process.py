"""The processes that the bench starts, each in a session of its own: their end, what they have logged; and what this
process may open.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from lmi.model.errors import OptionError

__all__ = ["end", "make_room", "tail"]

DESCRIPTORS = 100
"""Of this process that are no connections."""


def end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Waits for the end of a session's process, which has been asked for; kills what is still there then."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tail(log: Path) -> str:
    """The end of a log, where the reason stands."""
    return log.read_text(errors="replace")[-300:]


def make_room(connections: int) -> None:
    """Raises this process's limit of open files as far as so many connections need; raises OptionError where that is
    not allowed.
    """
    needed = connections + DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise OptionError(
            f"--connections: {connections} need {needed} open files, and {hard} are allowed (ulimit -Hn)", "connections"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
