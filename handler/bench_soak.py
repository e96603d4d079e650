"""`lmi bench --soak N`: so many requests to each server, and what its processes keep of them.

    batches of requests -> all connections closed, a rest -> memory, descriptors, threads of each process -> and again

Batches take the workloads and the numbers of connections in turn. A first tenth warms up; from there on the slope of
the memory is what a request leaves behind. During the rest a server can give back what it only kept for the next
request.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import cycle, product
from pathlib import Path
from typing import Protocol

import msgspec

from ..model.errors import OptionError
from .bench_cpu import own_memory, process_roles
from .bench_work import Figures, Workload, prompts

__all__ = ["Held", "Sample", "Soak", "Soaked", "report", "soak"]

BATCHES = 100
SMALLEST = 50
"""Requests of a batch."""
BETWEEN = 5
"""Batches from one look to the next."""
REST = 6.0
"""Seconds before a look."""
WARM = 0.1
"""The share of the requests before anything is compared."""
NOT_OURS = ("java",)
"""Its pools of threads grow and shrink by themselves."""
PATIENCE = 15.0
"""Seconds that a server may take to notice that its connections are closed."""
KiB, MiB = 1 << 10, 1 << 20


class Soaked(Protocol):
    """A server: bench_layers.UrlLayer."""

    name: str

    @property
    def process_id(self) -> int | None:
        """Its process, or the one that has started it; None: it is on another machine."""
        ...

    def start(self) -> None: ...

    def run(self, workload: Workload, prompts: Sequence[str], tokens: int, connections: int) -> Figures: ...

    def stop(self) -> None: ...


class Held(msgspec.Struct, frozen=True):
    """What a process has."""

    memory: int
    """Bytes of its own, without files (bench_cpu.own_memory)."""
    descriptors: int
    threads: int


class Sample(msgspec.Struct, frozen=True):
    """What all processes have after so many requests, by what they are."""

    requests: int
    held: dict[str, Held]


class Soak(msgspec.Struct, frozen=True):
    """What a server did with the requests."""

    layer: str
    requests: int
    lost: int
    """Tokens that were asked for and did not come. (A request without an answer ends the soak.)"""
    seconds: float
    samples: tuple[Sample, ...]
    """The first one is from when it was warm."""

    def slope(self, role: str) -> float:
        """Bytes that a request adds to a process."""
        points = [(sample.requests, sample.held[role].memory) for sample in self.samples if role in sample.held]
        if len(points) < 2:
            return 0.0
        return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope

    @property
    def leaks(self) -> list[str]:
        """Which process has more descriptors or threads at the end than when it was warm."""
        first, last = self.samples[0].held, self.samples[-1].held
        found: list[str] = []
        for role, before in first.items():
            if role in NOT_OURS:
                continue
            after = last.get(role)
            if after is None:
                found.append(f"{self.layer}: the {role} is gone")
                continue
            for what in ("descriptors", "threads"):
                one, other = getattr(before, what), getattr(after, what)
                if other > one:
                    found.append(f"{self.layer}: the {role} had {one} {what}, and has {other}")
        return found


def held(process_id: int | None) -> dict[str, Held]:
    """What a process and its descendants have now, by what they are."""
    import psutil

    found: dict[str, Held] = {}
    for process, role in process_roles(process_id) if process_id is not None else ():
        with suppress(psutil.Error, OSError):
            one, more = found.get(role, Held(0, 0, 0)), own_memory(process.pid)
            found[role] = Held(
                one.memory + more, one.descriptors + process.num_fds(), one.threads + process.num_threads()
            )
    return found


def settled(process_id: int | None, enough: Callable[[dict[str, Held]], bool]) -> dict[str, Held]:
    """What they have once `enough` says so, or after PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while not enough(found := held(process_id)) and time.monotonic() < deadline:
        time.sleep(0.25)
    return found


def soak(
    layer: Soaked,
    workloads: Sequence[Workload],
    connections: Sequence[int],
    *,
    tokens: int,
    requests: int,
    say: Callable[[str], None],
    rest: float = REST,
) -> Soak:
    """Asks `requests` times for `tokens` tokens; the layer is up. Raises what a request without an answer raises."""
    samples: list[Sample] = []
    size = max(SMALLEST, -(-requests // BATCHES))
    turns = cycle(product(connections, workloads))
    done = lost = 0
    seconds = 0.0
    while done < requests:
        number, workload = next(turns)
        asked = prompts(min(size, requests - done), done)
        began = time.monotonic()
        lost += layer.run(workload, asked, tokens, number).lost
        seconds += time.monotonic() - began
        done += len(asked)
        if done < WARM * requests or (samples and done % (BETWEEN * size)):
            continue
        if layer.process_id is not None:
            time.sleep(rest)
        found = held(layer.process_id) if samples else settled(layer.process_id, _Still())
        samples.append(Sample(done, found))
        sizes = ", ".join(f"{role} {one.memory / MiB:.1f} MiB" for role, one in found.items())
        say(f"{layer.name}: {done:,} of {requests:,} requests, {done / seconds:,.0f}/s; {sizes}")
    first = samples[0].held
    ours = {role: one for role, one in first.items() if role not in NOT_OURS}
    last = settled(layer.process_id, lambda now: not any(_more(one, now.get(role)) for role, one in ours.items()))
    samples.append(Sample(done, last))
    return Soak(layer.name, done, lost, seconds, tuple(samples))


class _Still:
    """Whether there are as many descriptors and threads as the last time."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, int]] | None = None

    def __call__(self, now: dict[str, Held]) -> bool:
        before = self._before
        self._before = {role: (one.descriptors, one.threads) for role, one in now.items()}
        return self._before == before


def _more(before: Held, now: Held | None) -> bool:
    return now is not None and (now.descriptors > before.descriptors or now.threads > before.threads)


COLUMNS = (
    "layer", "requests", "a second", "tokens lost", "process", "MiB when warm", "MiB at the end",
    "KiB a request", "descriptors", "threads",
)  # fmt: skip


def table(soaks: Iterable[Soak]) -> str:
    """Markdown: a line for each process."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "| --- " * len(COLUMNS) + "|"]
    for one in soaks:
        first, last = one.samples[0].held, one.samples[-1].held
        start = f"| {one.layer} | {one.requests:,} | {one.requests / one.seconds:,.0f} | {one.lost} |"
        for role, before in first.items():
            after = last.get(role, Held(0, 0, 0))
            lines.append(
                f"{start} {role} | {before.memory / MiB:.1f} | {after.memory / MiB:.1f} "
                f"| {one.slope(role) / KiB:.3f} | {before.descriptors}, {after.descriptors} "
                f"| {before.threads}, {after.threads} |"
            )
        if not first:
            lines.append(start + " ? |" + " |" * (len(COLUMNS) - 5))
    return "\n".join(lines)


def report(soaks: Sequence[Soak], output: Path | None) -> None:
    """Prints the table and writes OUTPUT.json; raises OptionError if something was lost or leaked."""
    print(table(soaks))
    sys.stdout.flush()
    if output:
        output.with_suffix(".json").write_text(json.dumps(msgspec.to_builtins(list(soaks)), indent=1) + "\n")
    wrong = [f"{one.layer}: {one.lost} tokens were lost" for one in soaks if one.lost]
    wrong += [leak for one in soaks for leak in one.leaks]
    if wrong:
        raise OptionError("; ".join(wrong))
