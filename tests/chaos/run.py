"""A long run of the chaos test, `make chaos`.

    start -> quiet run -> what is alive -> storm, with memory watched -> what is alive -> quiet run again -> report

On a host without Java connections are misused meanwhile, and its counters are held against what its clients saw.

docs/robustness.md has the results of long runs.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from ..kit.hosts.host import Host, client
from ..kit.metered import Sample, parsed
from .cases import pool
from .connections import Crowd
from .counters import disagreements
from .hosts import Victim
from .storm import Storm

__all__ = ["Report", "run"]

MiB = 1 << 20
GROWTH = 32 * MiB
"""By how much the worker and the engine may grow once they are warm."""
SLACK = {"engine's threads": 8}
"""vLLM leaves a thread of each regex that cannot be compiled to the garbage collector (compile_regex_with_timeout)."""
CASES_A_CLIENT = 4
LIMITS = {"option.max_rolling_batch_size": "32", "option.max_queued_requests": "64", "job_queue_size": "48"}
"""Lower than what a burst asks for."""
ROOM = {"option.max_rolling_batch_size": "32", "option.max_queued_requests": "5000"}
"""Two connections for each request that may be open: for all those that nothing is sent on, too."""


@dataclass
class Report:
    """What a run came to."""

    kind: str
    seconds: float
    clients: int
    seed: int
    before: dict[str, int]
    after: dict[str, int]
    storm: Storm
    memory: list[tuple[float, dict[str, int]]] = field(default_factory=list[tuple[float, dict[str, int]]])
    """When, and bytes by process without files (tests/bench/cpu.py)."""
    crowd: Crowd | None = None
    counted: tuple[dict[Sample, float], dict[Sample, float]] = field(default_factory=lambda: ({}, {}))
    """The server's counters, before and after."""

    def growth(self) -> dict[str, tuple[float, float]]:
        """Memory of each process when warm and at the end, as medians over a tenth of the time in between."""
        warm = self.storm.calm + 0.2 * (self.memory[-1][0] - self.storm.calm)
        samples = [(when, sizes) for when, sizes in self.memory if when >= warm]
        some = max(1, len(samples) // 10)

        def middle(part: Sequence[tuple[float, dict[str, int]]], role: str) -> float:
            return statistics.median(sizes[role] for _, sizes in part if role in sizes)

        return {role: (middle(samples[:some], role), middle(samples[-some:], role)) for role in samples[-1][1]}

    def wrong(self, growth: int = GROWTH) -> list[str]:
        """What should not have happened, in words."""
        found = self.storm.wrong()
        for what, number in self.before.items():
            if self.after[what] > number + SLACK.get(what, 0):
                found.append(f"{what}: {number} before the storm, {self.after[what]} after it")
        for role, (warm, end) in self.growth().items():
            if role != "java" and end - warm > growth:
                found.append(f"the {role} grew by {(end - warm) / MiB:.1f} MiB")
        if not any(outcome.result == "good" for outcome in self.storm.outcomes):
            found.append("no request was answered")
        if self.crowd:
            found += self.crowd.wrong()
            found += disagreements(*self.counted, self.storm, self.crowd.asked)
        return found

    def text(self) -> str:
        """Markdown."""
        lines = [f"Host {self.kind}, {self.clients} clients, {self.seconds:.0f} s, seed {self.seed}:", ""]
        lines += [self.storm.table(), ""]
        if self.crowd:
            lines += [self.crowd.table(), "", f"- idle connections at the same time: {self.crowd.most:,} at most"]
        for fault in self.storm.faults:
            locked = ", and DJL's threads have locked each other out" if fault.locked else ""
            lines.append(f"- {fault.name}: served again after {fault.ended - fault.began:.1f} s{locked}")
        for role, (warm, end) in self.growth().items():
            lines.append(f"- {role}: {warm / MiB:.1f} MiB when warm, {end / MiB:.1f} MiB at the end")
            some = self.memory[:: max(1, len(self.memory) // 20)]
            course = ", ".join(f"{sizes.get(role, 0) / MiB:.0f}" for _, sizes in some)
            lines.append(f"  ({course})")
        lines += [f"- {what}: {number} before, {self.after[what]} after" for what, number in self.before.items()]
        return "\n".join(lines)


async def warm(host: Host) -> None:
    """The first large body starts the thread that reads them."""
    async with client(host) as http:
        await http.post({"inputs": "x" * 300_000})


async def run(victim: Victim, *, seconds: float, clients: int, seed: int) -> Report:
    """The whole test on a host that has just been started; raises AssertionError where a quiet run goes wrong."""
    storm = Storm(victim.port, pool(CASES_A_CLIENT * clients, victim.kind), seed, clients, victim.faults())
    await storm.quiet()
    await warm(victim.host)
    # What is started when several need it at once, such as the threads of libraries, is there from then on.
    await Storm(victim.port, storm.cases, seed, clients, expected=storm.expected).rage(3)
    idle = await victim.settled(lambda found: not found["requests"])
    crowd = None if victim.djl else Crowd(victim.port, seed)
    report = Report(victim.kind, seconds, clients, seed, idle, {}, storm, crowd=crowd)
    before = {} if victim.djl else await _counters(victim.host)
    watching, over = asyncio.create_task(_watch(victim, report)), asyncio.Event()
    pressing = asyncio.create_task(crowd.press(over)) if crowd else None
    try:
        await storm.rage(seconds)
    finally:
        watching.cancel()
        over.set()
        if pressing:
            await pressing
    report.after = await victim.settled(lambda found: all(found[what] <= number for what, number in idle.items()))
    report.counted = before, {} if victim.djl else await _counters(victim.host)
    await storm.quiet()
    return report


async def _counters(host: Host) -> dict[Sample, float]:
    # The engine says once a second how many sequences it has.
    await asyncio.sleep(2)
    async with httpx.AsyncClient() as http:
        return parsed((await http.get(f"{host.url}/metrics")).text)


async def _watch(victim: Victim, report: Report) -> None:
    while True:
        report.memory.append((time.monotonic(), await asyncio.to_thread(victim.memory)))
        await asyncio.sleep(1)
