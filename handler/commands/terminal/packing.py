"""A bar for `lmi package`, where there is a terminal to draw it on; elsewhere package.py's own lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .console import can_draw, console_on

__all__ = ["showing_progress"]


@contextmanager
def showing_progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """What package.py is to call with a file's name, the bytes so far and all of them; None: nothing can be drawn."""
    if not can_draw(2):
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    file = TextColumn("{task.fields[file]}", markup=False)
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(), file)
    with Progress(*columns, console=console_on(2)) as bars:
        bar = bars.add_task("", total=None, file="")

        def show(name: str, done: int, total: int) -> None:
            bars.update(bar, completed=done, total=total, file=name)

        yield show
