"""The local server as something that listens: uvicorn with its own limits, our routes and our end.

    head --HEAD_BYTES--> 400, --HEAD_S--> 408     body --slower than SLOWEST--> the dialect's 504
    idle --KEEP_ALIVE_S--> closed                 connections --_room--> the longest idle is closed; none idle: 503
    closed, but its client does not read what is left --LINGER_S--> cut off

Nothing imports this before an engine is being started: `lmi serve` does so beside it, for uvicorn and starlette take as
long to import as all the rest of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import cast

import uvicorn

from ...model.log_filters import withhold
from ...model.options import Settings
from ..service import Service
from .access import Access
from .app import application
from .connections.connection import Connection
from .connections.waiting import Waiting
from .sockets import KEEP_ALIVE_S, may_listen

__all__ = ["http_server"]

log = logging.getLogger(__name__)

LAST_WORDS = 5.0
"""Seconds that the errors of what is cut off may take to be read."""
HEAD_BYTES = 64 << 10
"""Of a request line with its headers. A path may hold a request of the minimal dialect; proxies allow 8 to 32 KiB."""
LINGER_S = 30.0
"""The least seconds that what has been written to a connection that is closed may take to be read."""
IDLE = 64
"""Connections beyond twice the requests that may be open: of who asks for health and metrics."""
LOOK_S = 1.0
"""Seconds between two looks at what has nothing else to wake it."""
TICKS = 10
"""uvicorn's looks a second."""
DESCRIPTORS = 192
"""File descriptors that are kept for everything else."""


def http_server(
    service: Service,
    sockets: Sequence[socket.socket],
    *,
    access: Access,
    grace: float,
    keep_alive: int = KEEP_ALIVE_S,
    on_ready: Callable[[], None] = lambda: None,
    playground: bool = True,
) -> uvicorn.Server:
    """A server on `sockets`, which are bound, that gives what runs `grace` seconds when it is to end.

    `keep_alive`: seconds that a connection may be idle before it is closed.

    It calls `on_ready` once it listens.
    """
    withhold(("asyncio", "starlette", "uvicorn"))
    app = application(service, access, playground=playground)
    direct = getattr(app.state, "direct", None)
    config = uvicorn.Config(
        app,
        log_level="warning",
        log_config=None,
        # On h11: httptools takes less time, but keeps heads however long they are.
        http=cast("type[asyncio.Protocol]", partial(Connection, waiting=Waiting(), direct=direct)),
        h11_max_incomplete_event_size=HEAD_BYTES,
        # uvicorn refuses the connection that reaches it.
        limit_concurrency=_room(service.settings) + 1,
        ws="none",
        timeout_keep_alive=keep_alive,
    )
    return _Server(config, service, grace, sockets, on_ready)


def _room(settings: Settings) -> int:
    """How many connections are served: two for each request that may be open, for clients keep some for later.

    The soft limit of open files is raised as far as that needs and the hard one allows; what it has no room for is not
    served.
    """
    wanted = 2 * (settings.max_rolling_batch_size + settings.limits.max_queued_requests) + IDLE
    needed = wanted + DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    # At least half of them, however few there are.
    room = min(wanted, max(soft - DESCRIPTORS, soft // 2))
    if room < wanted:
        log.warning("the limit of open files, %d, allows %d connections, expected %d", soft, room, wanted)
    return room


class _Server(uvicorn.Server):
    """uvicorn's, which ends as handler/server/shutdown.py says."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        grace: float,
        sockets: Sequence[socket.socket],
        on_ready: Callable[[], None],
    ) -> None:
        config.timeout_graceful_shutdown = int(grace + LAST_WORDS) + 1
        self._wake: Callable[[], object] = lambda: None
        """Has the main loop look whether it is to end."""
        super().__init__(config)
        self._service = service
        self._sockets = list(sockets)
        self._grace = grace
        self._on_ready = on_ready
        self._closing: set[object] = set()
        """Connections that were closed already at the last look."""

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves to the end, on the sockets that it has."""
        super().run(sockets or self._sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen."""
        may_listen(self._sockets)
        await super().startup(sockets)
        self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's own would raise the signal again once it has stopped, and the status would not be 0."""
        yield

    @property
    def should_exit(self) -> bool:
        """Whether it is to end; set on any thread, and by signals."""
        return self._should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._should_exit = value
        if value:
            self._wake()

    async def main_loop(self) -> None:
        """One look a second. uvicorn's ten cost an idle process several milliseconds a second, where a busy core has
        the caches; it makes the date of responses at each tenth.
        """
        ending, loop = asyncio.Event(), asyncio.get_running_loop()

        def wake() -> None:
            # Once the loop is closed, nothing is left to end.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ending.set)

        self._wake = wake
        counter = 0
        while not await self.on_tick(counter):
            counter = (counter + TICKS) % (TICKS * 86_400)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ending.wait(), LOOK_S)

    async def on_tick(self, counter: int) -> bool:
        """Counts tenths of a second. uvicorn closes a connection once all is read; one whose client never reads is cut
        off.
        """
        if counter % int(TICKS * LINGER_S) == 0:
            closing = {one for one in self.server_state.connections if one.transport.is_closing()}
            for one in closing:
                if one in self._closing:
                    one.transport.abort()
            self._closing = set(closing)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends what is served."""
        log.info(
            "shutting down: %d requests in flight may take up to %g s", self._service.metrics.in_flight, self._grace
        )
        cutting = asyncio.ensure_future(self._cut_off())
        try:
            await super().shutdown(sockets)
        finally:
            cutting.cancel()

    async def _cut_off(self) -> None:
        await asyncio.sleep(self._grace)
        log.warning("shutting down: aborting %d requests", self._service.metrics.in_flight)
        await asyncio.to_thread(self._service.engine.close)
