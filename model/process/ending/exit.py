"""How the engine's process ends: with its host, and with all that it has started."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
from typing import NoReturn

from ..child import SCRATCH
from ..group import end_others
from .exit_report import shutting_down

__all__ = ["closing", "end_now", "end_with_host", "terminated", "watch_host"]

closing = threading.Event()
"""Set once the main thread is on its way out, which nothing is to interrupt."""


def end_with_host(timeout: float = 3.0) -> None:
    """Ends this process and its children: by SIGTERM, and after `timeout` seconds by SIGKILL."""
    shutting_down.set()
    timer = threading.Timer(timeout, end_now)
    timer.daemon = True
    timer.start()
    os.kill(os.getpid(), signal.SIGTERM)


def end_now() -> NoReturn:
    """Ends this process now, with all that it has started: the host may not be there to see to that."""
    end_others(timeout=2.0)
    if scratch := os.environ.get(SCRATCH):
        shutil.rmtree(scratch, ignore_errors=True)
    # Engines leave threads behind that would keep the process alive.
    os._exit(0)


def watch_host(sock: socket.socket) -> None:
    """Ends this process where the host goes away before the engine is up: nobody reads the channel until then."""

    def watch() -> None:
        try:
            gone = not sock.recv(1, socket.MSG_PEEK)
        except OSError:
            gone = True
        if gone:
            end_with_host()

    threading.Thread(target=watch, name="lmi-host", daemon=True).start()


def terminated(_signal: int, _frame: object) -> None:
    """What SIGTERM does."""
    # Several see the host's end: a second one must not break off what the first one began.
    if not closing.is_set():
        closing.set()
        raise SystemExit(0)
