"""CPU time and memory of the processes that the bench measures, and of the rest of the machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["OTHERS", "measured", "memory", "process_roles", "tree_memory"]

OTHERS = "others"
"""All processes that are not measured."""


@contextmanager
def measured(trees: Sequence[int] = ()) -> Iterator[dict[str, float]]:
    """CPU seconds used meanwhile, by what a process is: of `trees` with all their descendants.

    OTHERS is what the rest of the machine used, but for this process.
    """
    import psutil

    def times() -> dict[int, tuple[str, float]]:
        found: dict[int, tuple[str, float]] = {}
        for pid in trees:
            root = psutil.Process(pid)
            for process in [root, *root.children(recursive=True)]:
                with suppress(psutil.Error):
                    spent = process.cpu_times()
                    found[process.pid] = (_role(process.cmdline(), process == root), spent.user + spent.system)
        return found

    used: dict[str, float] = {}
    before = times()
    busy, own = _busy(), time.process_time()
    yield used
    busy, own = _busy() - busy, time.process_time() - own
    for pid, (role, seconds) in times().items():
        spent = seconds - before.get(pid, (role, 0.0))[1]
        if spent > 0:
            used[role] = used.get(role, 0.0) + spent
    used[OTHERS] = max(0.0, busy - sum(used.values()) - own)


def process_roles(pid: int) -> Iterator[tuple[Any, str]]:
    """A process and its descendants (psutil.Process), each with what it is."""
    import psutil

    with suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.Error):
                yield process, _role(process.cmdline(), process == root)


def tree_memory(pid: int) -> dict[str, int]:
    """Bytes that a process and its descendants have of their own, by what they are; see `memory`."""
    found: dict[str, int] = {}
    for process, role in process_roles(pid):
        with suppress(OSError):
            found[role] = found.get(role, 0) + memory(process.pid)[1]
    return found


def memory(pid: int) -> tuple[int, int]:
    """Bytes of a process: its resident memory, and of its own that no file backs, swapped out or not.

    The second is what only the process itself can make less: pages of libraries are resident as long as nobody else
    needs the memory.
    """
    import psutil

    status = Path(f"/proc/{pid}/status")
    if not status.parent.parent.joinpath("self").exists():
        # No Linux.
        resident = int(psutil.Process(pid).memory_info().rss)
        return resident, resident
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
    found = {name: 1024 * int(fields[name].split()[0]) for name in ("VmRSS", "RssAnon", "VmSwap") if name in fields}
    return found.get("VmRSS", 0), found.get("RssAnon", 0) + found.get("VmSwap", 0)


ROLES = (
    ("VLLM::APIServer", "server"),
    ("VLLM::", "engine core"),
    ("vllm-rs", "server"),
    ("vllm.entrypoints", "server"),
    ("bench.vllm_floor", "engine front"),
    ("model.process.engine_main", "engine process"),
    ("djl_python_engine", "worker"),
    ("lmi.testhost.Host", "java"),
    ("ai.djl.serving.ModelServer", "java"),
    ("lmi.handler.commands.cli serve", "server"),
)
"""What a process's command contains, and what it is called."""


def _role(command: Sequence[str], root: bool) -> str:
    line = " ".join(command)
    return next((role for sign, role in ROLES if sign in line), "host" if root else "engine core")


def _busy() -> float:
    """CPU seconds that the whole machine has been busy, those that its host took from it included."""
    import psutil

    spent = psutil.cpu_times()
    return float(spent.user + spent.system + getattr(spent, "nice", 0.0) + getattr(spent, "steal", 0.0))
