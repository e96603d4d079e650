"""What it costs to read a large body: a faulty one at most twice what a good one of its size does, and no call that
keeps other threads waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from ...kit.api.dialects import receive
from ...kit.api.engine import freeze
from ...kit.api.options import make_settings
from ...kit.api.types import ParsedRequest, Request, Response
from ...kit.faults.large_bodies import FAULTY, GOOD, longest_pause

pytestmark = pytest.mark.timing

SETTINGS = make_settings()
SIZES = {"256 KiB": (1 << 18) + 1, "1 MiB": 1 << 20, "16 MiB": 16 << 20}
ROUNDS = 5


@pytest.fixture(scope="module", autouse=True)
def _as_in_a_worker() -> None:
    freeze()


def costs(bodies: dict[bytes, type[ParsedRequest | Response]]) -> list[float]:
    """CPU seconds that it takes to read each body, the least of several rounds, in which they take turns: whatever else
    the machine does falls on all of them."""
    best = dict.fromkeys(bodies, float("inf"))
    for _ in range(ROUNDS):
        for body, expected in bodies.items():
            request = Request(body)
            begun = time.thread_time()
            answer = receive(request, SETTINGS)
            best[body] = min(best[body], time.thread_time() - begun)
            assert isinstance(answer, expected)
            del answer
    return list(best.values())


@pytest.mark.parametrize(
    ("kind", "size"), [(kind, size) for kind in FAULTY for size in SIZES if size == "16 MiB" or "too many" not in kind]
)
def test_a_fault_costs_at_most_twice(kind: str, size: str) -> None:
    made, good = FAULTY[kind]
    bodies = {GOOD[good](SIZES[size]): ParsedRequest, made(SIZES[size]): Response}
    whole, faulty = costs(bodies)
    assert faulty <= 2 * whole


def longest_wait(work: Callable[[], object]) -> float:
    """Seconds that another thread waits for the interpreter at most while `work` runs; the least of several rounds."""
    return min(_longest_wait(work) for _ in range(ROUNDS))


def _longest_wait(work: Callable[[], object]) -> float:
    waits: list[float] = []
    over = threading.Event()

    def wait() -> None:
        last = time.perf_counter()
        while not over.is_set():
            time.sleep(0.0005)
            now = time.perf_counter()
            waits.append(now - last)
            last = now

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        work()
    finally:
        over.set()
        thread.join()
    return max(waits)


@pytest.mark.parametrize("kind", [*GOOD, *FAULTY])
def test_others_go_on_while_a_body_is_read(kind: str) -> None:
    """As large as may be by default."""
    made = GOOD[kind] if kind in GOOD else FAULTY[kind][0]
    request = Request(made(SETTINGS.limits.max_body_bytes))
    assert longest_wait(lambda: receive(request, SETTINGS)) < longest_pause(SETTINGS.limits.max_body_bytes)
