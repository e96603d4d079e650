"""So many requests to a server, and what its processes keep of them.

    batches of requests -> all connections closed, a rest -> memory, descriptors, threads of each process -> and again

Batches take the workloads and the numbers of connections in turn; the two forms of a dialect, streamed and whole, have
the same prompts, so that each text is held against the other. A first tenth warms up; from there on the slope of the
memory is what a request leaves behind. During the rest a server can give back what it only kept for the next request.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import cycle

import msgspec

from ..bench.cpu import memory, process_roles
from ..bench.figures import Measured, figures
from ..bench.layers import UrlLayer
from ..bench.workloads import Workload, prompts

__all__ = ["Held", "KiB", "Sample", "Soak", "soak", "table"]

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


class Held(msgspec.Struct, frozen=True):
    """What a process has."""

    resident: int
    """Bytes, those of files that are mapped with them."""
    own: int
    """Bytes that no file backs (tests/bench/cpu.py)."""
    descriptors: int
    threads: int


NOTHING = Held(0, 0, 0, 0)


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
    unproven: int
    """Answers whose tokens are as many as they say themselves (tests/bench/figures.py)."""
    seconds: float
    samples: tuple[Sample, ...]
    """The first one is from when it was warm."""

    def slope(self, role: str, what: str = "own") -> float:
        """Bytes that a request adds to a process; `what` is `own` or `resident`."""
        points = [(one.requests, getattr(one.held[role], what)) for one in self.samples if role in one.held]
        if len(points) < 2:
            return 0.0
        return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope

    @property
    def judged(self) -> list[str]:
        """Its processes that are ours."""
        return [role for role in self.samples[0].held if role not in NOT_OURS]

    @property
    def leaks(self) -> list[str]:
        """Which process has more descriptors or threads at the end than when it was warm."""
        first, last = self.samples[0].held, self.samples[-1].held
        found: list[str] = []
        for role in self.judged:
            before, after = first[role], last.get(role)
            if after is None:
                found.append(f"{self.layer}: the {role} is gone")
                continue
            for what in ("descriptors", "threads"):
                one, other = getattr(before, what), getattr(after, what)
                if other > one:
                    found.append(f"{self.layer}: the {role} had {one} {what}, and has {other}")
        return found


COLUMNS = (
    "process", "RSS when warm, MiB", "at the end", "RSS, KiB a request", "without files when warm, MiB", "at the end",
    "without files, KiB a request", "descriptors", "threads",
)  # fmt: skip


def table(one: Soak) -> str:
    """Markdown: a line for each process."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "| --- " * len(COLUMNS) + "|"]
    for role, before in one.samples[0].held.items():
        after = one.samples[-1].held.get(role, NOTHING)
        lines.append(
            f"| {role} | {before.resident / MiB:.1f} | {after.resident / MiB:.1f} "
            f"| {one.slope(role, 'resident') / KiB:.3f} | {before.own / MiB:.1f} | {after.own / MiB:.1f} "
            f"| {one.slope(role) / KiB:.3f} | {before.descriptors}, {after.descriptors} "
            f"| {before.threads}, {after.threads} |"
        )
    return "\n".join(lines)


def held(process_id: int | None) -> dict[str, Held]:
    """What a process and its descendants have now, by what they are."""
    import psutil

    found: dict[str, Held] = {}
    for process, role in process_roles(process_id) if process_id is not None else ():
        with suppress(psutil.Error, OSError):
            one, (resident, own) = found.get(role, NOTHING), memory(process.pid)
            found[role] = Held(
                one.resident + resident,
                one.own + own,
                one.descriptors + process.num_fds(),
                one.threads + process.num_threads(),
            )
    return found


def settled(process_id: int | None, enough: Callable[[dict[str, Held]], bool]) -> dict[str, Held]:
    """What they have once `enough` says so, or after PATIENCE."""
    deadline = time.monotonic() + PATIENCE
    while not enough(found := held(process_id)) and time.monotonic() < deadline:
        time.sleep(0.25)
    return found


def soak(
    layer: UrlLayer,
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
    done = lost = unproven = 0
    seconds = 0.0
    for number, forms in _turns(workloads, connections):
        begun, pair = done, list[Measured]()
        for workload in forms:
            if done == requests:
                break
            asked = prompts(min(size, requests - done), begun)
            began = time.monotonic()
            pair.append(layer.run(workload, asked, tokens, number))
            seconds += time.monotonic() - began
            done += len(asked)
            if done < WARM * requests or (samples and done % (BETWEEN * size)):
                continue
            if layer.process_id is not None:
                time.sleep(rest)
            found = held(layer.process_id) if samples else settled(layer.process_id, _Still())
            samples.append(Sample(done, found))
            sizes = ", ".join(f"{role} {one.resident / MiB:.1f} MiB" for role, one in found.items())
            say(f"{layer.name}: {done:,} of {requests:,} requests, {done / seconds:,.0f}/s; {sizes}")
        for one, other in zip(pair, pair[1:] + pair[:1], strict=True):
            counted = figures(one, other.texts if other is not one else ())
            lost, unproven = lost + counted.lost, unproven + counted.unproven
        if done == requests:
            break
    ours = {role: one for role, one in samples[0].held.items() if role not in NOT_OURS}
    last = settled(layer.process_id, lambda now: not any(_more(one, now.get(role)) for role, one in ours.items()))
    samples.append(Sample(done, last))
    return Soak(layer.name, done, lost, unproven, seconds, tuple(samples))


def _turns(workloads: Sequence[Workload], connections: Sequence[int]) -> Iterator[tuple[int, tuple[Workload, ...]]]:
    """Numbers of connections, with the workloads of one dialect, for ever."""
    dialects = dict.fromkeys(workload.dialect for workload in workloads)
    forms = [tuple(one for one in workloads if one.dialect == dialect) for dialect in dialects]
    return cycle([(number, form) for number in connections for form in forms])


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
