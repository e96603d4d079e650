"""All steps, the report of them, and the exit status."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from .bench import TABLES
from .report import machine, render
from .run import NOT_RUN, PASSED, Outcome, Step, run

__all__ = ["REPORT", "check"]

REPORT = "report.md"


def check(asked: Sequence[Step], folder: Path, device: str) -> int:
    """Runs the steps and writes FOLDER/report.md after each; the exit status."""
    facts = machine(device)

    def seen(outcomes: Sequence[Outcome]) -> None:
        tables = folder / TABLES
        text = tables.read_text(encoding="utf-8").strip() if tables.exists() else ""
        (folder / REPORT).write_text(render(facts, outcomes, text, device=device), encoding="utf-8")
        told = [outcome for outcome in outcomes if outcome.result != NOT_RUN]
        for last in told[-1:]:
            print(f"gpu-check: {last.step.name}: {last.result}, {last.seconds:.0f} s", file=sys.stderr, flush=True)

    outcomes = run(asked, seen)
    passed = sum(outcome.result == PASSED for outcome in outcomes)
    print(f"gpu-check: {passed} of {len(outcomes)} steps passed on the {device}: {folder / REPORT}", file=sys.stderr)
    return 0 if passed == len(outcomes) else 1
