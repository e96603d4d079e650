"""Memory that is free goes back to the system, in a process of its own: how much is free is seen from outside."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lmi.model.heap import trimmer

pytestmark = pytest.mark.skipif(trimmer() is None, reason="this C library has no malloc_trim")

HOARD = """
import ctypes, time
from lmi.model import heap

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
held = lambda: heap.held() >> 20
heap.keep_trimmed(lambda: BUSY, 0.05, RARELY)
time.sleep(0.5)
before = held()
# Small enough to come from the heap; the last one, which stays, keeps the others' place from being given back.
pieces = [libc.malloc(60_000) for _ in range(COUNT)]
for piece in pieces:
    ctypes.memset(piece, 1, 60_000)
time.sleep(USED)
for piece in pieces[:-1]:
    libc.free(piece)
hoarded = held() - before
deadline = time.monotonic() + WAIT
while held() - before > 15 and time.monotonic() < deadline:
    time.sleep(0.05)
print(hoarded, held() - before)
"""


def hoard(count: int, *, wait: float, used: float = 0.0, busy: bool = False, rarely: float = 60.0) -> list[int]:
    """MiB that a process holds of `count` times 60,000 bytes that it has freed: at first, and after a while."""
    script = HOARD
    for name, value in (("COUNT", count), ("WAIT", wait), ("USED", used), ("BUSY", busy), ("RARELY", rarely)):
        script = script.replace(name, str(value))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return [int(number) for number in done.stdout.split()]


@pytest.mark.parametrize(
    ("used", "busy"), [(0.0, False), (0.5, False), (0.0, True)], ids=["free at once", "in use before", "busy"]
)
def test_much_that_is_free_is_given_back(used: float, busy: bool) -> None:
    _, left = hoard(4000, wait=20, used=used, busy=busy, rarely=1.0)
    assert left <= 15


@pytest.mark.parametrize(("count", "busy"), [(600, False), (4000, True)], ids=["a little", "busy"])
def test_a_little_and_while_there_is_work_it_is_left_for_the_process_to_use_again(count: int, busy: bool) -> None:
    hoarded, left = hoard(count, wait=0.5, busy=busy)
    assert hoarded > 25
    assert left > 25
