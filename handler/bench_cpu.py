"""CPU time of the processes that the bench measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

__all__ = ["measured"]


@contextmanager
def measured(process_id: int | None = None, whole: bool = True) -> Iterator[dict[str, float]]:
    """CPU seconds that a process and its descendants use meanwhile, by what they are; `whole`: None is this process."""
    import psutil

    def times() -> dict[int, tuple[str, float]]:
        if process_id is None and not whole:
            return {}
        root = psutil.Process(process_id)
        found: dict[int, tuple[str, float]] = {}
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.Error):
                spent = process.cpu_times()
                role = _role(process.cmdline()) or ("ours" if process == root else "engine")
                found[process.pid] = (role, spent.user + spent.system)
        return found

    used: dict[str, float] = {}
    before = times()
    yield used
    for pid, (role, seconds) in times().items():
        spent = seconds - before.get(pid, (role, 0.0))[1]
        if spent > 0:
            used[role] = used.get(role, 0.0) + spent


def _role(command: Sequence[str]) -> str | None:
    """What a process is, as far as its command tells."""
    line = " ".join(command)
    for sign, role in (
        ("engine_process", "engine"),
        ("EngineCore", "engine"),
        ("vllm_floor", "engine's front"),
        ("djl_python_engine", "worker"),
        ("lmi.testhost.Host", "java"),
    ):
        if sign in line:
            return role
    return None
