"""How processes end: an exit code in words, and an exit at once that reports its cause to the host."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable

__all__ = ["describe_exit", "end_at_once", "report_exit_to", "shutting_down"]

log = logging.getLogger(__name__)

LISTEN_TIMEOUT_S = 0.5
"""Seconds that reporting to the host may take."""


def _no_listener(_cause: str) -> None:
    pass


shutting_down = threading.Event()
"""Set once this process is shutting down as it should: nothing that ends now is unexpected."""
_listener: list[Callable[[str], None]] = [_no_listener]


def describe_exit(code: int) -> str:
    """How a process ended, by its exit code; minus a signal's number is the signal."""
    if code >= 0:
        return f"with code {code}"
    try:
        return f"by signal {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def report_exit_to(tell: Callable[[str], None]) -> None:
    """Sets the function that reports why the process ends."""
    _listener[0] = tell


def end_at_once(cause: str, code: int = 3) -> None:
    """Ends this process, unless it is shutting down already; reports the cause to the host if it listens."""
    if shutting_down.is_set():
        return
    log.critical("the engine's process ends itself: %s", cause)
    reporting = threading.Thread(target=_report, args=(cause,), daemon=True)
    with contextlib.suppress(RuntimeError):
        reporting.start()
        reporting.join(LISTEN_TIMEOUT_S)
    os._exit(code)


def _report(cause: str) -> None:
    with contextlib.suppress(OSError):
        _listener[0](cause)
