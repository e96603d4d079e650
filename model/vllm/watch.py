"""The watch over vLLM's processes: this one ends with any of them, and says which one it was, and why.

How a process ended, only its parent is told: of vLLM's cores that is this one; of their workers, one for each device,
it is seen that they have ended. Where a device waits for one that is gone, vLLM's own watch takes longer.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.process import BaseProcess
from pathlib import Path

from ..process.ending.exit_report import describe_exit, end_at_once
from ..process.ending.output_tail import OutputTail
from ..process.group import members

__all__ = ["end_with", "killed", "processes", "started"]

LOOK_S = 0.05
"""Seconds between two looks at which processes there are while vLLM starts them."""

OF_VLLM = "VLLM::"
"""How vLLM's processes call themselves (vllm.utils.system_utils, set_process_title), though not all that are forked."""


def processes() -> set[BaseProcess]:
    """Those that this one has started by multiprocessing, as vLLM does."""
    return set(multiprocessing.active_children())


@contextmanager
def started() -> Iterator[set[BaseProcess]]:
    """Those that this one starts by multiprocessing meanwhile; if that fails, with those that have ended: how they did,
    nobody else knows then.
    """
    before, found, over = processes(), set[BaseProcess](), threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            found.update(processes() - before)

    looking = threading.Thread(target=look, name="lmi-started", daemon=True)
    looking.start()
    try:
        yield found
    except BaseException:
        over.set()
        looking.join()
        raise
    over.set()
    looking.join()
    found.clear()
    found.update(processes() - before)


def killed(found: set[BaseProcess]) -> str:
    """Which of these a signal has ended, and which signal, but for the one by which vLLM itself ends the others; empty:
    none.
    """
    told = [f"vLLM's process {one.name} ended{_how(one)}" for one in list(found) if (one.exitcode or 0) < 0]
    return "; ".join(sorted(line for line in told if not line.endswith("SIGTERM")))


def end_with(started: set[BaseProcess], output: OutputTail, closing: threading.Event) -> None:
    """Ends this process with any that is `started`, or that those have started, unless it is `closing`."""
    children = {_descriptor(child): child for child in started}
    workers = _workers({child.pid for child in started})

    def watch() -> None:
        ended = [one for one in wait_for_any([*children, *workers]) if isinstance(one, int)]
        if closing.is_set():
            return
        # What a worker that failed has written, its core is about to end for.
        cause = output.cause()
        if cause and not any(one in children for one in ended):
            ended += [one for one in wait_for_any([*children], timeout=1.0) if isinstance(one, int)]
        told = [f"{children[one].name} ended{_how(children[one])}" for one in ended if one in children]
        told = told or [f"{workers[one]} ended" for one in ended]
        how = "; ".join(f"vLLM's process {one}" for one in told)
        if not closing.is_set():
            end_at_once(f"{how}: {cause}" if cause and "signal" not in how else how)

    threading.Thread(target=watch, name="lmi-watch", daemon=True).start()


def _descriptor(child: BaseProcess) -> int:
    """One that tells of its end. A sentinel does so only once all that it has forked have ended too: for Linux before
    5.3."""
    try:
        return os.pidfd_open(child.pid or 0)
    except OSError:
        return child.sentinel


def _workers(cores: set[int | None]) -> dict[int, str]:
    """A descriptor that tells of its end, and the name, for each worker of these cores."""
    found: dict[int, str] = {}
    own = _command(os.getpid())
    for pid in members(os.getpgid(0)):
        # One may end at any time.
        with contextlib.suppress(OSError):
            command = _command(pid)
            # Others, such as compilers, have commands of their own, and may end.
            if (command == own or command.startswith(OF_VLLM)) and _parent(pid) in cores:
                found[os.pidfd_open(pid)] = _name(command, pid)
    return found


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])


def _name(command: str, pid: int) -> str:
    return command.removeprefix(OF_VLLM) if command.startswith(OF_VLLM) else f"worker {pid}"


def _how(child: BaseProcess) -> str:
    """How a process that has ended did; vLLM waits for it as well, so that for a moment nobody may know."""
    for _ in range(20):
        if (code := child.exitcode) is not None:
            return f" {describe_exit(code)}"
        time.sleep(0.01)
    return ""
