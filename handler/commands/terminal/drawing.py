"""A start as a picture: a line for each step, with its seconds and, where the engine says how far it is, a bar."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from .start import Start, Step

__all__ = ["Drawing"]

WIDTH = 24
"""Columns of a bar."""
PASSED, FAILED = ("+", "green"), ("x", "red")


class Drawing:
    """Draws `start` anew each time that it is asked."""

    def __init__(self, start: Start, failed: Callable[[], bool]) -> None:
        self._start = start
        self._failed = failed
        self._spinner = Spinner("line", style="cyan")

    def __call__(self) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        for step in self._start.steps:
            share = f"{step.done}/{step.total}" if step.total else ""
            bar: RenderableType = ProgressBar(step.total, step.done, width=WIDTH) if step.total else ""
            seconds = (step.ended or self._start.clock()) - step.began
            table.add_row(self._mark(step), step.name, Text(f"{seconds:.1f} s", style="dim"), bar, share)
        return table

    def _mark(self, step: Step) -> RenderableType:
        if step.ended is None:
            return self._spinner
        failed = step is self._start.steps[-1] and self._failed()
        return Text(*(FAILED if failed else PASSED))
