"""The local server as something that listens: uvicorn with our connections, our routes and our end.

Nothing imports this before an engine is being started: `lmi serve` does so beside it, for uvicorn and starlette take as
long to import as all the rest of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator

import uvicorn

from ...model.log_filters import withhold
from ..service import Service
from .app import application
from .http_protocol import Door, room

__all__ = ["http_server"]

log = logging.getLogger(__name__)

LAST_WORDS = 5.0
"""Seconds that the errors of what is cut off may take to be read."""


def http_server(service: Service, host: str, port: int, *, api_key: str | None, grace: float) -> uvicorn.Server:
    """A server on `host` and `port` that gives what runs `grace` seconds when it is to end."""
    withhold(("asyncio", "starlette", "uvicorn"))
    config = uvicorn.Config(
        application(service, api_key),
        host=host,
        port=port,
        log_level="warning",
        log_config=None,
        # uvicorn calls it as it does its own classes.
        http=Door(*room(service.settings)),  # type: ignore[arg-type]
        ws="none",
    )
    return _Server(config, service, grace)


class _Server(uvicorn.Server):
    """uvicorn's, which ends as handler/server/shutdown.py says."""

    def __init__(self, config: uvicorn.Config, service: Service, grace: float) -> None:
        config.timeout_graceful_shutdown = int(grace + LAST_WORDS) + 1
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
