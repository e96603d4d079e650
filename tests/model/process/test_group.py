"""The processes of an engine, ended as one group: what works at once, what tidies up only when it has done so."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from lmi.model.process.group import PROCESS_GROUP

LEAVE = """
import os
from multiprocessing.shared_memory import SharedMemory
from lmi.model.process.group import end_others
memory = SharedMemory(create=True, size=1000)
print(memory.name, flush=True)
end_others()
os._exit(0)
"""


def test_what_ends_its_own_group_leaves_no_shared_memory() -> None:
    """Its tracker removes that, which can do so only once its last user has ended: it is not killed before."""
    command = [sys.executable, "-c", LEAVE]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True, **PROCESS_GROUP)
    name = done.stdout.strip()
    assert name
    shared = Path("/dev/shm", name)
    deadline = time.monotonic() + 10
    try:
        while shared.exists():
            assert time.monotonic() < deadline, "its shared memory is left"
            time.sleep(0.01)
    finally:
        shared.unlink(missing_ok=True)
