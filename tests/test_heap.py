"""Memory that is free goes back to the system, in a process of its own: how much is free is seen from outside."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lmi.model.heap import trimmer

HOARD = """
import ctypes, time
import psutil
from lmi.model import heap

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
held = lambda: psutil.Process().memory_info().rss >> 20
before = held()
# Small enough to come from the heap; the last one, which stays, keeps the others' place from being given back.
pieces = [libc.malloc(60_000) for _ in range(2000)]
for piece in pieces:
    ctypes.memset(piece, 1, 60_000)
for piece in pieces[:-1]:
    libc.free(piece)
hoarded = held() - before
heap.LITTLE = -1.0 if WORKS else 1e9
heap.keep_trimmed(0.05)
deadline = time.monotonic() + WAIT
while held() - before > 30 and time.monotonic() < deadline:
    time.sleep(0.05)
print(hoarded, held() - before)
"""


def hoard(*, works: bool, wait: float) -> list[int]:
    """MiB that a process holds of 114 that it has freed: at first, and after a while."""
    script = HOARD.replace("WORKS", str(works)).replace("WAIT", str(wait))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return [int(number) for number in done.stdout.split()]


@pytest.mark.skipif(trimmer() is None, reason="this C library has no malloc_trim")
def test_a_process_at_work_gives_back_what_is_free() -> None:
    hoarded, left = hoard(works=True, wait=20)
    assert hoarded > 100
    assert left < 30


@pytest.mark.skipif(trimmer() is None, reason="this C library has no malloc_trim")
def test_a_process_that_rests_is_left_alone() -> None:
    hoarded, left = hoard(works=False, wait=0.5)
    assert hoarded > 100
    assert left > 100
