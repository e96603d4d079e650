"""How `lmi serve` ends.

    SIGTERM or SIGINT while the engine starts   at once
    the first one while requests are served     nothing new is accepted; what runs has `grace` seconds to end
                                                by itself, then the engine is closed, at which each request gets an
                                                error in its dialect's form; then the status is 0
    a second one                                at once, with the status that shells give a signal
    the engine is given up                      as by the first one: what starts this process anew starts an engine

However it ends, the engine's process goes first.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Protocol

from ...model.engine import Engine

__all__ = ["Shutdown"]


class Server(Protocol):
    """What serves requests: uvicorn.Server."""

    should_exit: bool

    def run(self) -> None: ...


class Shutdown:
    """Takes this process' signals from its construction on. To be made on the main thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._server: Server | None = None
        self._stop: Callable[[], None]
        self.asked = False
        """Whether a signal has come."""
        self.lost: str | None = None
        """Why the engine is gone for good, if it is."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take)

    def run(self, server: Server, stop: Callable[[], None]) -> None:
        """Serves until a signal comes, at which `stop` is called and the server ends."""
        self._server, self._stop = server, stop
        # A signal's SystemExit is lost where Python cannot raise, as in a finalizer; the signal is not.
        if not self.asked:
            server.run()

    def lose(self, why: str) -> None:
        """Ends the server, whose engine will not be back. On any thread, while it serves."""
        self.lost = why
        self._end()

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if self.asked:
            self._end_now(number)
        self.asked = True
        if self._server is None:
            raise SystemExit(0)
        self._end()

    def _end(self) -> None:
        assert self._server is not None, "it serves"
        self._stop()
        self._server.should_exit = True

    def _end_now(self, number: int) -> None:
        if process := self._engine.process_id:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
        os._exit(128 + number)
