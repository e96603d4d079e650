"""How `lmi serve` ends.

    SIGTERM or SIGINT while the engine starts   at once
    the first one while requests are served     nothing new is accepted; what runs has `grace` seconds to end
                                                by itself, then the engine is closed, at which each request gets an
                                                error in its dialect's form; then the status is 0
    a second one                                at once, with the status that shells give a signal

However it ends, the engine's process goes first.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType
from typing import Protocol

from .service import Service

__all__ = ["Ending"]


class Server(Protocol):
    """What serves requests: uvicorn.Server."""

    should_exit: bool

    def run(self) -> None: ...


class Ending:
    """Takes this process' signals from its construction on. To be made on the main thread."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._server: Server | None = None
        self._asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take)

    def run(self, server: Server) -> None:
        """Serves until a signal comes."""
        self._server = server
        server.run()

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if self._asked:
            self._end_now(number)
        self._asked = True
        if self._server is None:
            raise SystemExit(0)
        self._service.stop()
        self._server.should_exit = True

    def _end_now(self, number: int) -> None:
        if process := self._service.engine.process_id:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
        os._exit(128 + number)
