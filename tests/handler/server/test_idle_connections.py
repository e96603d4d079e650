"""Connections that wait for their next request: how long they are kept, and who is served at the end of that time."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ...kit.hosts.local_server import Make, Running, answer, serving, until

PING = b"GET /ping HTTP/1.1\r\nHost: test\r\n\r\n"
GENERATE = b"POST /generate HTTP/1.1\r\nHost: test\r\nContent-Length: 16\r\n\r\n"
MANY = 64


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Make]:
    with serving(tmp_path) as make:
        yield make


def idle(server: Running, stack: contextlib.ExitStack, count: int) -> list[socket.socket]:
    """Connections on which a request has been answered."""
    sockets = [stack.enter_context(server.connect()) for _ in range(count)]
    for sock in sockets:
        sock.sendall(PING)
    for sock in sockets:
        assert answer(sock)[0] == 200
    return sockets


@contextlib.contextmanager
def stalled(server: Running) -> Iterator[None]:
    """The server's event loop does nothing meanwhile, as on a machine that is busy with something else.

    It is stopped while it reads what has arrived: what arrives then is read after the timers that are due then.
    """
    (listener,) = server.uvicorn.servers
    loop = listener.get_loop()
    began, go_on = threading.Event(), threading.Event()
    ours, theirs = socket.socketpair()

    def stall() -> None:
        loop.remove_reader(theirs)
        began.set()
        go_on.wait(30)

    with ours, theirs:
        loop.call_soon_threadsafe(loop.add_reader, theirs, stall)
        ours.send(b"1")
        assert began.wait(30)
        try:
            yield
        finally:
            go_on.set()


@pytest.mark.parametrize("sent", [PING, GENERATE, PING[:1]], ids=["whole", "a head", "a byte"])
def test_a_request_that_comes_when_the_time_is_over_is_served(running: Make, sent: bytes) -> None:
    """uvloop runs the timers that are due before it reads what has arrived."""
    server = running(keep_alive=1)
    with contextlib.ExitStack() as stack:
        sockets = idle(server, stack, MANY)
        with stalled(server):
            time.sleep(1.1)
            for sock in sockets:
                sock.sendall(sent)
        time.sleep(0.2)
        for sock in sockets:
            rest = PING[1:] if sent == PING[:1] else b"" if sent == PING else b'{"inputs": true}'
            sock.sendall(rest)
        status = 422 if sent == GENERATE else 200
        assert [answer(sock)[0] for sock in sockets] == [status] * MANY


def test_who_sends_nothing_in_that_time_is_closed(running: Make) -> None:
    server = running(keep_alive=1)
    with contextlib.ExitStack() as stack:
        sockets = idle(server, stack, MANY)
        began = time.monotonic()
        assert [sock.recv(1) for sock in sockets] == [b""] * MANY
        assert 0.5 < time.monotonic() - began < 20
        until(lambda: server.connections == 0)


def test_each_request_begins_the_time_anew(running: Make) -> None:
    server = running(keep_alive=2)
    with contextlib.ExitStack() as stack:
        (sock,) = idle(server, stack, 1)
        for _ in range(4):
            time.sleep(0.7)
            sock.sendall(PING)
            assert answer(sock)[0] == 200


def test_they_are_kept_longer_than_load_balancers_keep_them(running: Make) -> None:
    """An AWS load balancer reuses a connection for 60 seconds, nginx for as long: the server must not be the first."""
    server = running()
    assert server.uvicorn.config.timeout_keep_alive == 75
    with contextlib.ExitStack() as stack:
        (sock,) = idle(server, stack, 1)
        time.sleep(5.5)
        sock.sendall(PING)
        assert answer(sock)[0] == 200


def test_a_server_that_ends_does_not_wait_for_them(running: Make) -> None:
    server = running()
    with contextlib.ExitStack() as stack:
        sockets = idle(server, stack, MANY)
        began = time.monotonic()
        server.uvicorn.should_exit = True
        assert [sock.recv(1) for sock in sockets] == [b""] * MANY
        server.thread.join(30)
        assert not server.thread.is_alive()
        assert time.monotonic() - began < 10


def test_one_that_its_client_has_reset_is_left_alone(running: Make, caplog: pytest.LogCaptureFixture) -> None:
    """The time of those that were lost by an error runs on."""
    server = running(keep_alive=1)
    with contextlib.ExitStack() as stack:
        (sock,) = idle(server, stack, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
        until(lambda: server.connections == 0)
        time.sleep(1.2)
    assert [record.name for record in caplog.records if record.name == "asyncio"] == []
