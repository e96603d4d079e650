"""What `lmi check` finds, in groups for a person, or as JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from ...model.errors import OptionError
from ...model.options.finding import Finding, Level
from .check import check
from .terminal import coloured

__all__ = ["as_json", "findings", "report"]

HEADINGS: dict[Level, tuple[str, str]] = {
    "error": ("errors: it cannot be served as it is", "1;31"),
    "warning": ("warnings: it is served, but not as it is written", "1;33"),
    "note": ("notes", "1;36"),
    "fact": ("checked", "1;32"),
}
"""By level, in the order in which they are told, a heading and how it looks (terminal.py)."""
FORM = 1
"""Of the JSON; one that programs of before could not read has a higher one."""


def findings(model_dir: Path, overrides: Mapping[str, str]) -> list[Finding]:
    """All that `check` has to say; what it refuses are errors, after which it has nothing else to say."""
    try:
        return check(model_dir, overrides)
    except OptionError as error:
        return [Finding.of(fault) for fault in error.faults]


def as_json(model_dir: Path, found: Sequence[Finding]) -> str:
    """For programs (docs/cli.md)."""
    good = not any(one.level == "error" for one in found)
    document = {"version": FORM, "model_dir": str(model_dir), "ok": good, "findings": found}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def report(found: Sequence[Finding]) -> None:
    """Prints them for a person."""
    for text, style in _lines(found):
        print(coloured(text, style, sys.stdout))


def _lines(found: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """Lines, each with how it looks."""
    for level, (heading, style) in HEADINGS.items():
        group = [finding for finding in found if finding.level == level]
        if group:
            yield heading, style
        yield from ((f"  {finding.message}", "") for finding in group)
