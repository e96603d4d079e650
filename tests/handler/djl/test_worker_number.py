"""The numbers of a host's workers: distinct, and free again when a worker ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lmi.handler.djl.worker_number import claimed_number

pytestmark = pytest.mark.once

SCRIPT = """
import sys
from lmi.handler.djl.worker_number import claimed_number
print(claimed_number(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def workers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(workers: ExitStack) -> tuple[int, subprocess.Popen[str]]:
    """The number of a new child of ours, and the child, which ends with its standard input."""
    child = subprocess.Popen([sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    workers.enter_context(child)
    workers.callback(child.kill)
    assert child.stdout is not None
    return int(child.stdout.readline()), child


def test_each_worker_has_its_own_and_the_next_one_that_of_the_dead(workers: ExitStack) -> None:
    (first, killed), (second, _), (third, _) = (started(workers) for _ in range(3))
    assert [second, third] == [first + 1, first + 2]
    killed.kill()
    killed.wait()
    assert started(workers)[0] == first


def test_another_hosts_workers_begin_anew() -> None:
    # No process has such numbers, which end at 2^22, nor have two runs of this test the same.
    host = (1 << 23) + 2 * os.getpid()
    assert [claimed_number(host), claimed_number(host)] == [0, 1]
    assert claimed_number(host + 1) == 0
