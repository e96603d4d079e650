"""A long run of the chaos test, `make chaos`.

    start -> quiet run -> what is alive -> storm, with memory watched -> what is alive -> quiet run again -> report

docs/robustness.md has the results of long runs.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..kit.hosts.host import Host, client
from .cases import pool
from .hosts import Victim
from .storm import Storm

__all__ = ["Report", "run"]

MiB = 1 << 20
GROWTH = 32 * MiB
"""By how much the worker and the engine may grow once they are warm."""
CASES_A_CLIENT = 4
LIMITS = {"option.max_rolling_batch_size": "32", "option.max_queued_requests": "64", "job_queue_size": "48"}
"""Lower than what a burst asks for."""


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
            if self.after[what] > number:
                found.append(f"{what}: {number} before the storm, {self.after[what]} after it")
        for role, (warm, end) in self.growth().items():
            if role != "java" and end - warm > growth:
                found.append(f"the {role} grew by {(end - warm) / MiB:.1f} MiB")
        if not any(outcome.result == "good" for outcome in self.storm.outcomes):
            found.append("no request was answered")
        return found

    def text(self) -> str:
        """Markdown."""
        lines = [f"Host {self.kind}, {self.clients} clients, {self.seconds:.0f} s, seed {self.seed}:", ""]
        lines += [self.storm.table(), ""]
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
    idle = await victim.settled(lambda found: not found["requests"])
    report = Report(victim.kind, seconds, clients, seed, idle, {}, storm)
    watching = asyncio.create_task(_watch(victim, report))
    try:
        await storm.rage(seconds)
    finally:
        watching.cancel()
    report.after = await victim.settled(lambda found: all(found[what] <= number for what, number in idle.items()))
    await storm.quiet()
    return report


async def _watch(victim: Victim, report: Report) -> None:
    while True:
        report.memory.append((time.monotonic(), await asyncio.to_thread(victim.memory)))
        await asyncio.sleep(1)
