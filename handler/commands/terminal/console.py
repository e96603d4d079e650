"""The terminal, where there is one that can be drawn on and `rich` is there to do it."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["can_draw", "console_on"]


def can_draw(descriptor: int) -> bool:
    """Whether `descriptor` leads to a terminal that can be drawn on, and `rich` is installed. Imports nothing."""
    try:
        terminal = os.isatty(descriptor)
    except OSError:
        return False
    return terminal and os.environ.get("TERM", "") not in {"", "dumb"} and importlib.util.find_spec("rich") is not None


def console_on(descriptor: int) -> Console:
    """A console that draws on the terminal behind `descriptor`, which stays open."""
    from rich.console import Console

    file = os.fdopen(os.dup(descriptor), "w", encoding=_encoding())
    return Console(file=file, highlight=False, markup=False, emoji=False)


def _encoding() -> str:
    import locale

    return locale.getpreferredencoding(do_setlocale=False)
