"""What is alive inside a host's process, told to whoever connects: a thread of the process itself counts.

It stands alone, so that a model directory can hold a copy of it: `start()` there, `ask(pid)` in the test. The socket is
an abstract one (Linux), named after the process.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

__all__ = ["ask", "start"]

KINDS = ("Exchange", "Deferred", "Stream", "_Open")
"""Of ours, one for each open request (handler/exchange.py, deferred.py, server/streams.py,
djl/modes/rolling_batch.py)."""


def _name(pid: int) -> str:
    return f"\0lmi-probe-{pid}"


def start() -> None:
    """Starts the thread; once a process."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(_name(os.getpid()))
    except OSError:
        listener.close()
        return
    listener.listen()
    threading.Thread(target=_serve, args=(listener,), name="probe", daemon=True).start()


def _serve(listener: socket.socket) -> None:
    while True:
        asker, _ = listener.accept()
        with asker, suppress(OSError):
            asker.sendall(json.dumps(counts()).encode())


def counts() -> dict[str, int]:
    """Tasks that have not ended, threads, descriptors, and objects that stand for an open request."""
    # What a start has frozen is none of these otherwise.
    gc.unfreeze()
    gc.collect()
    seen: Counter[str] = Counter()
    for found in gc.get_objects():
        kind = type(found)
        if kind.__name__ in KINDS and kind.__module__.startswith("lmi."):
            seen["requests"] += 1
        # Not isinstance: what pretends to be of another class may do a lot when it is asked.
        elif issubclass(kind, asyncio.Task) and not found.done():
            seen["tasks"] += 1
    return {
        "requests": seen["requests"],
        "tasks": seen["tasks"],
        "threads": threading.active_count(),
        "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
    }


def ask(pid: int) -> dict[str, int]:
    """What is alive in a process that has started its probe; raises OSError where there is none."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(60)
        asking.connect(_name(pid))
        parts: list[bytes] = []
        while part := asking.recv(4096):
            parts.append(part)
    answer: dict[str, int] = json.loads(b"".join(parts))
    return answer
