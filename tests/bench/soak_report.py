"""What `python -m tests.bench --soak` found: a table, a verdict on each server, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from lmi.model.errors import OptionError

from .arguments import LIMIT
from .soak import NOTHING, KiB, MiB, Soak

__all__ = ["report", "table", "verdict"]

COLUMNS = (
    "layer", "requests", "a second", "tokens lost", "process", "RSS when warm, MiB", "at the end", "RSS, KiB a request",
    "without files when warm, MiB", "at the end", "without files, KiB a request", "descriptors", "threads",
)  # fmt: skip


def table(soaks: Iterable[Soak]) -> str:
    """Markdown: a line for each process."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "| --- " * len(COLUMNS) + "|"]
    for one in soaks:
        first, last = one.samples[0].held, one.samples[-1].held
        start = f"| {one.layer} | {one.requests:,} | {one.requests / one.seconds:,.0f} | {one.lost} |"
        for role, before in first.items():
            after = last.get(role, NOTHING)
            lines.append(
                f"{start} {role} | {before.resident / MiB:.1f} | {after.resident / MiB:.1f} "
                f"| {one.slope(role, 'resident') / KiB:.3f} | {before.own / MiB:.1f} | {after.own / MiB:.1f} "
                f"| {one.slope(role) / KiB:.3f} | {before.descriptors}, {after.descriptors} "
                f"| {before.threads}, {after.threads} |"
            )
        if not first:
            lines.append(start + " ? |" + " |" * (len(COLUMNS) - 5))
    return "\n".join(lines)


def verdict(one: Soak, limit: float) -> str:
    """A line: whether it passed, and by what."""
    if wrong := one.faults(limit):
        return "FAILED: " + "; ".join(wrong)
    if not one.judged:
        return f"passed: {one.layer}: no token lost; its processes are not known"
    grown = (f"{role} {max(one.slope(role, what) for what in ('own', 'resident')) / KiB:.3f}" for role in one.judged)
    return (
        f"passed: {one.layer}: no token lost, no descriptor or thread left; from request {one.samples[0].requests:,} "
        f"to {one.requests:,} memory grew by {', '.join(grown)} KiB a request, {limit:g} at most"
    )


def report(soaks: Sequence[Soak], output: Path | None, limit: float = LIMIT) -> None:
    """Prints the table and verdicts and writes OUTPUT.json; raises OptionError if something was lost or leaked.

    `limit` is in KiB a request.
    """
    print(table(soaks))
    for one in soaks:
        print("\n" + verdict(one, limit))
        if one.unproven:
            print(
                f"{one.layer}: {one.unproven:,} of {one.requests:,} answers have no text to be compared with, or other "
                "words than it; their tokens are as many as they say themselves"
            )
    sys.stdout.flush()
    if output:
        made = [
            {
                **msgspec.to_builtins(one),
                "limit": limit,
                "slopes": {
                    role: {what: one.slope(role, what) / KiB for what in ("resident", "own")}
                    for role in one.samples[0].held
                },
                "faults": one.faults(limit),
            }
            for one in soaks
        ]
        output.with_suffix(".json").write_text(json.dumps(made, indent=1) + "\n")
    if wrong := [fault for one in soaks for fault in one.faults(limit)]:
        raise OptionError("; ".join(wrong))
