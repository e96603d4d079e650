"""The local server on a thread and a real socket, with an engine that says what it is told."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from lmi.handler.server import app
from lmi.handler.server import body_reading as bodies
from lmi.handler.server.access import Access
from lmi.handler.server.app import LocalServer
from lmi.handler.server.body_reading import Bodies
from lmi.handler.server.run import http_server
from lmi.handler.server.sockets import KEEP_ALIVE_S, bound_sockets

from ..api.handler import started_service
from ..user_code.engine import ScriptedEngine
from ..waiting import until

TIMEOUT = 30.0


def discard_within(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of a refused request's body has `seconds` to come, not its half minute."""
    for module in (app, bodies):
        monkeypatch.setattr(module, "DISCARD_TIMEOUT_S", seconds)


class Running:
    """The local server on a thread."""

    def __init__(
        self,
        folder: Path,
        *,
        most: int = 100,
        access: Access | None = None,
        grace: float = TIMEOUT,
        keep_alive: int = KEEP_ALIVE_S,
        prepare: Callable[[Starlette], None] = lambda app: None,
        **options: str,
    ) -> None:
        """`most`: connections that are served. `grace`: seconds that what runs has once it is to end.

        `keep_alive`: seconds until an idle connection is closed. `prepare` is called with the application.
        """
        self.engine = ScriptedEngine()
        self.most = most
        self.service = started_service(self.engine, folder, **options)
        self._stack = contextlib.ExitStack()
        sockets = self._stack.enter_context(bound_sockets("127.0.0.1", 0))
        self.uvicorn = http_server(self.service, sockets, access=access or Access(), grace=grace, keep_alive=keep_alive)
        self.uvicorn.config.limit_concurrency = most + 1
        app: Any = self.uvicorn.config.app
        prepare(app)
        self.bodies: Bodies = _server_of(app).bodies
        self.thread = threading.Thread(target=self.uvicorn.run)
        self.thread.start()
        until(lambda: self.uvicorn.started)
        (listener,) = self.uvicorn.servers[0].sockets
        self.port: int = listener.getsockname()[1]

    @property
    def connections(self) -> int:
        return len(self.uvicorn.server_state.connections)

    def connect(self) -> socket.socket:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(TIMEOUT)
        sock.connect(("127.0.0.1", self.port))
        return sock

    def ask(self, sock: socket.socket, body: object, length: int | None = None) -> int:
        """Sends a request; the number of its generation."""
        number = len(self.engine.generations)
        content = json.dumps(body).encode()
        head = f"POST /invocations HTTP/1.1\r\nHost: test\r\nContent-Length: {length or len(content)}\r\n\r\n"
        sock.sendall(head.encode() + content)
        if length is None:
            until(lambda: len(self.engine.generations) > number)
        return number

    def close(self) -> None:
        self.uvicorn.should_exit = self.uvicorn.force_exit = True
        self.thread.join(TIMEOUT)
        assert not self.thread.is_alive()
        self.service.close()
        self._stack.close()


def _server_of(app: Starlette) -> LocalServer:
    (route,) = (route for route in app.routes if isinstance(route, Route) and route.path == "/invocations")
    endpoint: Any = route.endpoint
    server: LocalServer = endpoint.__self__
    return server


Make = Callable[..., Running]


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Make]:
    """Makes servers, and ends them."""
    servers: list[Running] = []

    def make(**options: Any) -> Running:
        servers.append(Running(folder, **options))
        return servers[-1]

    try:
        yield make
    finally:
        for one in servers:
            one.close()


def ended(sock: socket.socket) -> bool:
    """Whether the server ends the connection, without a further answer."""
    with contextlib.suppress(ConnectionResetError):
        return sock.recv(1) == b""
    return True


def answer(sock: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one answer, none of which may be missing."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = sock.recv(1 << 16)
        assert part, data
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    while len(body) < int(headers["content-length"]):
        part = sock.recv(1 << 16)
        assert part, data
        body += part
    return int(status.split()[1]), headers, body
