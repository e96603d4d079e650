"""`python -m tests.bench --startup`: the time from the start of a host's process to its first healthy answer, by
stages.

The stages are those that the handler logs (model/startup.py), and vLLM's own, as far as it logs them. OURS are those in
which code of ours runs; everything else is Python, the host, vLLM, and the model.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from lmi.model.errors import StartError

from .layers import CommandLayer

__all__ = ["LIMIT", "OURS", "stages_in", "startup", "startup_table"]

OURS = (
    "host: imports, options",
    "host: code of the user's",
    "spawn, messages",
    "engine: interpreter, imports of ours",
    "engine: settings",
    "engine: options",
    "engine: tokenizer, templates",
    "server up",
)
"""Imports and options contain the local server's interpreter (DJL's is in "host: djl_python"), and the options vLLM's
own argument parser, which they are read with."""
LIMIT = 0.02
"""The share of the whole that no stage of ours is to exceed."""
OTHERS_HOST = "host's own"
"""What a host that is not ours takes before its worker starts and after that is ready: Java."""

VLLMS = {
    "of it: weights": re.compile(r"Loading weights took ([\d.]+) s"),
    "of it: KV cache, warm-up": re.compile(r"init engine \([^)]*\) took ([\d.]+) s"),
}


def startup(command: Sequence[str] | str, log: Path, *, ours: bool = True) -> dict[str, float]:
    """Seconds of each stage of one start, in their order; `total` is the last of them.

    `command` starts a server (bench_layers.CommandLayer); its output has the lines of the handler's log that tell how
    that went. `ours`: it is the local server.
    """
    layer = CommandLayer("host", command, log)
    begun = time.perf_counter()
    try:
        layer.start()
        total = time.perf_counter() - begun
    finally:
        layer.stop()
    text = log.read_text(errors="replace")
    host, engine = stages_in(text, "ready after [^:]*: "), stages_in(text, "the engine's process: ")
    found = {f"host: {stage}": seconds for stage, seconds in host.items() if stage != "engine's process"}
    found["spawn, messages"] = host["engine's process"] - sum(engine.values())
    for stage, seconds in engine.items():
        found[f"engine: {stage}"] = seconds
        if stage == "vLLM's engine":
            found |= {name: float(said[-1]) for name, sign in VLLMS.items() if (said := sign.findall(text))}
    found["server up" if ours else OTHERS_HOST] = total - sum(host.values())
    return {**found, "total": total}


def stages_in(log: str, head: str) -> dict[str, float]:
    """The stages in the first line with `head`, a pattern, in it (startup.shown)."""
    line = re.search(head + "(.*)", log)
    if line is None:
        raise StartError(f"the server's log does not tell how its start went: {log[-300:]}")
    return {stage: float(seconds) for stage, seconds in re.findall(r"(.+?) (-?\d+\.\d+)(?:, |$)", line[1])}


def startup_table(starts: Sequence[dict[str, float]]) -> str:
    """Markdown: the median of each stage, and its share of the whole; what is ours, and whether that is too much."""
    shown = {stage: median(start.get(stage, 0.0) for start in starts) for stage in starts[0]}
    whole = shown["total"]
    lines = ["| start-up | s | % | |", "| --- | --- | --- | --- |"]
    for stage, seconds in shown.items():
        mine = "ours" if stage in OURS else ""
        if mine and seconds > LIMIT * whole:
            mine = f"**ours, above {100 * LIMIT:.0f} %**"
        lines.append(f"| {stage} | {seconds:.2f} | {100 * seconds / whole:.1f} | {mine} |")
    everything = sum(seconds for stage, seconds in shown.items() if stage in OURS)
    lines.append(f"| all of ours | {everything:.2f} | {100 * everything / whole:.1f} |  |")
    return "\n".join(lines)
