"""How processes end: in words, and what one says to its host when it ends at once, whatever its other threads do."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable

__all__ = ["end_at_once", "ending", "report_exit_to", "shutting_down"]

log = logging.getLogger(__name__)

LISTEN_TIMEOUT_S = 0.5
"""Seconds that the host has to listen."""


def _nobody(_cause: str) -> None:
    pass


shutting_down = threading.Event()
"""Set once this process is ending as it should: nothing that ends now is a surprise."""
_listener: list[Callable[[str], None]] = [_nobody]


def ending(code: int) -> str:
    """How a process ended, by its exit code; minus a signal's number is the signal."""
    if code >= 0:
        return f"with code {code}"
    try:
        return f"by signal {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def report_exit_to(tell: Callable[[str], None]) -> None:
    """`tell` is to be given the cause of an end."""
    _listener[0] = tell


def end_at_once(cause: str, code: int = 3) -> None:
    """Ends this process, unless it is ending in good order; its host is told the cause if it listens."""
    if shutting_down.is_set():
        return
    log.critical("%s", cause)
    saying = threading.Thread(target=_say, args=(cause,), daemon=True)
    with contextlib.suppress(RuntimeError):
        saying.start()
        saying.join(LISTEN_TIMEOUT_S)
    os._exit(code)


def _say(cause: str) -> None:
    with contextlib.suppress(OSError):
        _listener[0](cause)
