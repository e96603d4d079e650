"""Clients of every dialect and manner at once, on each host; the long form with faults too.

pytest tests/chaos                               seconds a host, no faults
LMI_CHAOS_SECONDS=600 pytest tests/chaos -k long hosts of its own that are killed in parts (as `make chaos`)
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ..kit.djl import hosting
from ..kit.hosts.host import WITHOUT_JAVA, Host, Server, engine_process, eventually
from .cases import KINDS, pool
from .connections import QUICK, Crowd
from .hosts import Victim
from .run import LIMITS, ROOM, run, warm
from .storm import Storm

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]

SECONDS = float(os.environ.get("LMI_CHAOS_SECONDS", "0"))
CLIENTS = 12
MERGED = {"option.merge_records": "true"}


def alive(host: Host) -> dict[str, Counter[str]]:
    """Descriptors and threads of the worker and of the engine: what they are, and how many."""
    found: dict[str, Counter[str]] = {}
    for name, pid in (("worker", host.worker_pid), ("engine", engine_process(host).pid)):
        process = Path(f"/proc/{pid}")
        found[f"{name} descriptors"] = kinds(process, "fd/*", os.readlink)
        found[f"{name} threads"] = kinds(process, "task/*/comm", lambda comm: comm.read_text().strip())
    return found


def kinds(process: Path, pattern: str, what: Callable[[Path], str]) -> Counter[str]:
    """By name without numbers: sockets differ in nothing else."""
    counted: Counter[str] = Counter()
    for entry in process.glob(pattern):
        # It may go away meanwhile.
        with suppress(OSError):
            counted[re.sub(r"\d+", "0", what(entry))] += 1
    return counted


async def settled(host: Host, before: dict[str, Counter[str]]) -> None:
    """Waits until there are no more descriptors and threads than before."""
    more: dict[str, Counter[str]] = {}

    async def no_more() -> bool:
        nonlocal more
        now = await asyncio.to_thread(alive, host)
        more = {what: now[what] - before[what] for what in now if now[what].total() > before[what].total()}
        return not more

    try:
        await eventually(no_more)
    except AssertionError:
        pytest.fail(f"after the storm there are more: {more}")


async def stormed(host: Host) -> None:
    """A storm of a few seconds, and what it leaves."""
    port = int(host.url.rpartition(":")[2])
    cases = pool(2 * len(KINDS), "server" if isinstance(host, Server) else "djl")
    storm = Storm(port, cases, seed=8, clients=CLIENTS)
    await storm.quiet()
    # What is started when several need it at once, such as the threads of libraries, is there from then on.
    await storm.rage(2)
    await storm.quiet()
    await warm(host)
    # Other tests' connections have been closed, if only just now.
    before = alive(host)
    over, crowd = asyncio.Event(), Crowd(port, seed=8, idle=300, misuses=QUICK)
    pressing = asyncio.create_task(crowd.press(over)) if isinstance(host, Server) else None
    await storm.rage(6)
    over.set()
    if pressing:
        await pressing
        assert crowd.wrong() == []
    assert storm.wrong() == []
    results = {outcome.result for outcome in storm.outcomes}
    assert results >= {"good", "refused", "left"}
    assert {outcome.name for outcome in storm.outcomes if outcome.result == "good"} == set(KINDS)
    await settled(host, before)
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
@pytest.mark.parametrize(
    ("kind", "properties"), [("server", LIMITS), ("container", ROOM), ("rolling", LIMITS), ("async", LIMITS)]
)
async def test_a_long_storm_with_faults(
    kind: str, properties: dict[str, str], demo_model: Path, tmp_path: Path
) -> None:
    if kind not in WITHOUT_JAVA and (missing := hosting.available()):
        pytest.skip(missing)
    victim = Victim(kind, demo_model, tmp_path, properties)
    try:
        report = await run(victim, seconds=SECONDS, clients=64, seed=8)
    finally:
        victim.stop()
    print(report.text())
    assert report.wrong() == []
