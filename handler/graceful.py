"""How `lmi serve` ends.

    SIGTERM or SIGINT while the engine starts   at once
    the first one while requests are served     nothing new is accepted; what runs has `grace` seconds to end
                                                by itself, then the engine is closed, at which each request gets an
                                                error in its dialect's form; then the status is 0
    a second one                                at once, with the status that shells give a signal

However it ends, the engine's process goes first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Iterator
from types import FrameType

import uvicorn

from .service import Service

__all__ = ["Ending"]

log = logging.getLogger(__name__)

LAST_WORDS = 5.0
"""Seconds that the errors of what is cut off may take to be read."""


class Ending:
    """Takes this process' signals from its construction on. To be made on the main thread."""

    def __init__(self, service: Service, grace: float) -> None:
        self._service = service
        self._grace = grace
        self._server: _Server | None = None
        self._asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take)

    def run(self, config: uvicorn.Config) -> None:
        """Serves until a signal comes."""
        config.timeout_graceful_shutdown = int(self._grace + LAST_WORDS) + 1
        self._server = _Server(config, self._service, self._grace)
        self._server.run()

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


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, service: Service, grace: float) -> None:
        super().__init__(config)
        self._service = service
        self._grace = grace

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's own would raise the signal anew once it has stopped, and the status would not be 0."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends what is served."""
        log.info("stopping: %d requests in flight have %g s", self._service.metrics.in_flight, self._grace)
        cutting = asyncio.ensure_future(self._cut_off())
        try:
            await super().shutdown(sockets)
        finally:
            cutting.cancel()

    async def _cut_off(self) -> None:
        await asyncio.sleep(self._grace)
        log.warning("stopping: %d requests are cut off", self._service.metrics.in_flight)
        await asyncio.to_thread(self._service.engine.close)
