"""The processes of an engine, which are one process group: found in /proc, and killed.

A process that is killed leaves its shared memory behind in /dev/shm. Python's resource trackers, a process beside each
one that uses any, remove it once all of its users are gone: so they are let live until they have done that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

__all__ = ["PROCESS_GROUP", "end_group", "end_others", "members"]


if sys.version_info >= (3, 11):

    class _ProcessGroup(TypedDict):
        process_group: int

    PROCESS_GROUP: _ProcessGroup = {"process_group": 0}
else:

    class _ProcessGroup(TypedDict):
        start_new_session: bool

    PROCESS_GROUP: _ProcessGroup = {"start_new_session": True}
"""For subprocess.Popen: a process group of its own, which can be ended as one and which Ctrl-C does not reach.

But in the same session: Linux may share out the cores among sessions (sched_autogroup_enabled), and then a host whose
engine kept all of them busy was seen to wait for seconds. Python 3.10 can only make a session.
"""
KILL_TIMEOUT_S = 10.0
"""Seconds that killed processes are waited for: those in the midst of a system call end with it."""
TRACKERS_TIMEOUT_S = 5.0
"""Seconds that resource trackers have."""
_PROC = Path("/proc")


def members(group: int) -> list[int]:
    """The process ids of a process group, without those that have ended and wait for their parent to notice."""
    return list(_members(group))


def _members(group: int) -> Iterator[int]:
    for entry in _PROC.glob("[0-9]*/stat"):
        # One may end at any time.
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, _parent, its_group = entry.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                yield int(entry.parent.name)


def _is_tracker(pid: int) -> bool:
    """Whether it is a resource tracker: of Python's multiprocessing, or of a library that copied it."""
    try:
        return b"resource_tracker" in (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False


def end_group(group: int, timeout: float = KILL_TIMEOUT_S) -> None:
    """Kills every process of a group, and waits for their end.

    The group's leader must not have been waited for: as long as it has not, its number is nobody else's.
    """
    if not _PROC.is_dir():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    elif _end_workers(group, 0, timeout):
        deadline = time.monotonic() + TRACKERS_TIMEOUT_S
        while (left := members(group)) and time.monotonic() < deadline:
            time.sleep(0.005)
        _kill(left)


def end_others(timeout: float = KILL_TIMEOUT_S) -> None:
    """Kills every other process of this one's own group. Trackers end by themselves once this one has ended too."""
    _end_workers(os.getpgid(0), os.getpid(), timeout)


def _end_workers(group: int, keep: int, timeout: float) -> bool:
    """Kills all but `keep` and trackers; whether they have ended."""
    deadline = time.monotonic() + timeout
    # Again and again: one of them may have just started another.
    while left := [pid for pid in members(group) if pid != keep and not _is_tracker(pid)]:
        _kill(left)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
