"""Clients of every dialect and manner at once, on each host; the long form with faults too.

pytest tests/chaos                               seconds a host, no faults
LMI_CHAOS_SECONDS=600 pytest tests/chaos -k long hosts of its own that are killed in parts (as `make chaos`)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from ..djl import hosting
from ..endpoints import Host, Server, engine_process, eventually
from .cases import KINDS, pool
from .hosts import Victim
from .run import LIMITS, run
from .storm import Storm

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]

SECONDS = float(os.environ.get("LMI_CHAOS_SECONDS", "0"))
CLIENTS = 12
MERGED = {"option.merge_records": "true"}


def alive(host: Host) -> list[int]:
    """Descriptors and threads of the worker and of the engine."""
    processes = [psutil.Process(host.worker_pid), engine_process(host)]
    return [count() for one in processes for count in (one.num_fds, one.num_threads)]


async def settled(host: Host, wanted: Callable[[list[int]], bool]) -> None:
    async def is_so() -> bool:
        return wanted(await asyncio.to_thread(alive, host))

    await eventually(is_so)


async def stormed(host: Host) -> None:
    """A storm of a few seconds, and what it leaves."""
    port = int(host.url.rpartition(":")[2])
    cases = pool(2 * len(KINDS), "server" if isinstance(host, Server) else "djl")
    storm = Storm(port, cases, seed=8, clients=CLIENTS)
    await storm.quiet()
    # Other tests' connections have been closed, if only just now.
    before = alive(host)
    await storm.rage(6)
    assert storm.wrong() == []
    results = {outcome.result for outcome in storm.outcomes}
    assert results >= {"good", "refused", "left"}
    assert {outcome.name for outcome in storm.outcomes if outcome.result == "good"} == set(KINDS)
    await settled(host, lambda now: all(one <= other for one, other in zip(now, before, strict=True)))
    await storm.quiet()


async def test_a_storm(host: Host) -> None:
    await stormed(host)


@pytest.mark.parametrize("kind", ["rolling", "async"])
async def test_a_storm_with_merged_records(kind: str, demo_model: Path, tmp_path: Path) -> None:
    if missing := hosting.available():
        pytest.skip(missing)
    victim = Victim(kind, demo_model, tmp_path, MERGED)
    try:
        await stormed(victim.host)
    finally:
        victim.stop()


@pytest.mark.skipif(not SECONDS, reason="LMI_CHAOS_SECONDS is not set")
@pytest.mark.timeout(SECONDS + 900)
@pytest.mark.parametrize("kind", ["server", "rolling", "async"])
async def test_a_long_storm_with_faults(kind: str, demo_model: Path, tmp_path: Path) -> None:
    if kind != "server" and (missing := hosting.available()):
        pytest.skip(missing)
    victim = Victim(kind, demo_model, tmp_path, LIMITS)
    try:
        report = await run(victim, seconds=SECONDS, clients=64, seed=8)
    finally:
        victim.stop()
    print(report.text())
    assert report.wrong() == []
