"""Clients that neither read nor send, and those that wait between two requests: the local server on a real socket,
with an engine that says what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest

from lmi.handler.server import app as server_module
from lmi.handler.server import body_reading as bodies_module
from lmi.handler.server import run as run_module
from lmi.handler.server.access import Access

from ...kit.api.handler import started_service
from ...kit.api.types import Delta, Finish, Started
from ...kit.hosts.local_server import Make, Running, answer
from ...kit.user_code.engine import ScriptedEngine
from ...kit.waiting import until

CHUNK = "x" * 100_000
"""Text of one event."""


STREAM = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "ERROR_GRACE_S", 0.1)
    monkeypatch.setattr(run_module, "LINGER_S", 0.1)


def test_what_waits_for_a_client_is_bounded(running: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmi.handler.exchange.PATIENCE_S", 0.05)
    server = running(max_unsent_bytes="1000000")
    with server.connect() as slow:
        ticket = server.ask(slow, STREAM)
        server.engine.say(ticket, Started(1))
        said = 0
        while server.engine.running:
            server.engine.say(ticket, Delta(0, CHUNK))
            said += 1
            assert said < 1000
            time.sleep(0.001)
        # What the kernel takes, what uvicorn takes, and what may wait.
        assert said < 100
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += slow.recv(1 << 20)
    assert data.count(CHUNK.encode()) == said
    assert b'"code":"slow_reader"' in data


def test_records_that_are_longer_than_may_wait_reach_a_client_that_reads(running: Make) -> None:
    """As the echo of a long prompt with its log-probabilities, of several prompts in one step."""
    server = running(max_unsent_bytes="1000")
    with server.connect() as fast:
        fast.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        ticket = server.ask(fast, STREAM)
        server.engine.say(ticket, Started(1), *(Delta(0, CHUNK) for _ in range(20)))
        server.engine.say(ticket, *(Delta(0, "y") for _ in range(200)))
        server.engine.say(ticket, Delta(0, "", finish=Finish("eos", generated_tokens=1)))
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += fast.recv(1 << 20)
    assert (data.count(CHUNK.encode()), b"slow_reader" in data) == (20, False)


def test_a_client_that_never_reads_is_cut_off(running: Make) -> None:
    """Whether its answer is complete by then or not."""
    server = running(request_timeout="0.2")
    with server.connect() as deaf, server.connect() as other:
        for sock, finish in ((deaf, None), (other, Finish("eos", generated_tokens=1))):
            ticket = server.ask(sock, STREAM)
            for _ in range(30):
                server.engine.say(ticket, Delta(0, CHUNK))
            server.engine.say(ticket, Delta(0, CHUNK, finish=finish))
        until(lambda: not server.engine.running)
        until(lambda: not server.connections)


def test_a_client_that_never_reads_the_end_is_cut_off(running: Make) -> None:
    """All has been written, and lies in the server's memory."""
    server = running()
    server.uvicorn.config.timeout_keep_alive = 1
    with server.connect() as deaf:
        ticket = server.ask(deaf, STREAM)
        (protocol,) = server.uvicorn.server_state.connections
        transport: Any = protocol.transport
        for _ in range(2000):
            server.engine.say(ticket, Delta(0, "x" * 10_000))
            time.sleep(0.001)
            if transport.get_write_buffer_size():
                break
        server.engine.say(ticket, Delta(0, "", finish=Finish("eos", generated_tokens=1)))
        until(lambda: not server.service.admission.open)
        until(lambda: not server.connections)


class Closing:
    """A connection, and its own transport."""

    def __init__(self, *, closing: bool) -> None:
        self.transport = self
        self.closing = closing
        self.aborted = False

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.aborted = True


def test_each_connection_is_cut_off_at_the_second_look_at_which_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever others are or were closed: each has its own time to be read, and none has more."""
    monkeypatch.setattr(run_module, "LINGER_S", 0.3)  # three ticks
    server = run_module.http_server(started_service(ScriptedEngine()), [], access=Access(), grace=1.0)
    connections: Any = server.server_state.connections
    first, second, third, left, stays = (Closing(closing=one) for one in (True, False, False, True, False))
    connections |= {first, second, third, left, stays}

    def aborted(look: int) -> list[bool]:
        for tick in (3 * look, 3 * look + 1):
            asyncio.run(server.on_tick(tick))
        return [one.aborted for one in (first, second, third, left, stays)]

    assert not any(aborted(1))
    connections.discard(left)
    second.closing = True
    assert aborted(2) == [True, False, False, False, False]
    connections.discard(first)
    third.closing = True
    assert aborted(3) == [True, True, False, False, False]
    assert aborted(4) == [True, True, True, False, False]


def test_what_a_slow_client_has_yet_to_read_is_not_cut_off(running: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has closed the connection; the client has its time to read."""
    monkeypatch.setattr(run_module, "LINGER_S", 30.0)
    server = running(max_body_bytes="1000")
    with server.connect() as slow:
        slow.sendall(b"POST /invocations HTTP/1.1\r\nHost: test\r\nContent-Length: 1001\r\n\r\n" + b" " * 1001)
        time.sleep(0.4)
        assert slow.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_never_sends_its_body_is_told_of_the_limit(
    running: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies_module, "DISCARD_TIMEOUT_S", 0.2)
    server = running(request_timeout="0.2")
    with server.connect() as silent:
        server.ask(silent, {"inputs": "Hi"}, 500)
        status, headers, body = answer(silent)
        assert (status, headers["connection"]) == (424, "close")
        assert "the body did not arrive within 0.2 seconds (option.request_timeout)" in body.decode()
        assert silent.recv(100) == b""
    until(lambda: not server.connections)
    assert server.service.admission.open == 0


def test_a_client_that_leaves(running: Make) -> None:
    server = running()
    for stream in (False, True):
        with server.connect() as leaving:
            ticket = server.ask(leaving, {**STREAM, "stream": stream})
            server.engine.say(ticket, Started(1), Delta(0, "Hel"))
            if stream:
                assert leaving.recv(10) == b"HTTP/1.1 2"
        until(lambda: server.engine.aborted == [*range(len(server.engine.generations))])
        assert server.service.admission.open == 0


# --- Connections that wait for their next request ---

PING = b"GET /ping HTTP/1.1\r\nHost: test\r\n\r\n"
GENERATE = b"POST /generate HTTP/1.1\r\nHost: test\r\nContent-Length: 16\r\n\r\n"
MANY = 64


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


def test_a_request_that_comes_when_the_time_is_over_is_served(running: Make) -> None:
    """uvloop runs the timers that are due before it reads what has come. Who sends nothing in that time is closed."""
    server = running(keep_alive=1)
    # Whole, a head, a byte: what is sent in time, what then, and the answer's status.
    sent = ((PING, b"", 200), (GENERATE, b'{"inputs": true}', 422), (PING[:1], PING[1:], 200))
    with contextlib.ExitStack() as stack:
        sockets = idle(server, stack, MANY)
        with stalled(server):
            time.sleep(1.1)
            for sock, (first, _, _) in zip(sockets, cycle(sent), strict=False):
                sock.sendall(first)
        time.sleep(0.2)
        for sock, (_, rest, _) in zip(sockets, cycle(sent), strict=False):
            sock.sendall(rest)
        for sock, (_, _, status) in zip(sockets, cycle(sent), strict=False):
            assert answer(sock)[0] == status
        began = time.monotonic()
        assert [sock.recv(1) for sock in sockets] == [b""] * MANY
        assert 0.5 < time.monotonic() - began < 20
        until(lambda: server.connections == 0)


def test_each_request_begins_the_time_anew(running: Make) -> None:
    """And the time that its body has to arrive."""
    server = running(keep_alive=1, request_timeout="1")
    with contextlib.ExitStack() as stack:
        (sock,) = idle(server, stack, 1)
        for _ in range(3):
            time.sleep(0.5)
            sock.sendall(GENERATE + b'{"inputs": true}')
            assert answer(sock)[0] == 422


def test_a_server_that_ends_does_not_wait_for_them(running: Make) -> None:
    server = running()
    # An AWS load balancer reuses a connection for 60 seconds, nginx for as long: the server must not be the first.
    assert server.uvicorn.config.timeout_keep_alive == 75
    with contextlib.ExitStack() as stack:
        sockets = idle(server, stack, MANY)
        began = time.monotonic()
        server.uvicorn.should_exit = True
        assert [sock.recv(1) for sock in sockets] == [b""] * MANY
        server.thread.join(30)
        assert not server.thread.is_alive()
        assert time.monotonic() - began < 10


def test_a_server_ends_at_once_however_seldom_it_looks(running: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "LOOK_S", 1000.0)
    server = running()
    server.uvicorn.should_exit = True
    server.thread.join(30)
    assert not server.thread.is_alive()
    server.uvicorn.should_exit = True  # As its engine's end would, when there is no loop any more.


def test_responses_have_the_time_at_which_they_are_made(running: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "LOOK_S", 0.1)
    server = running()
    dates = set[bytes]()

    def dated() -> bool:
        with server.connect() as sock:
            sock.sendall(b"GET /ping HTTP/1.1\r\nHost: test\r\n\r\n")
            dates.update(line for line in sock.recv(1 << 16).split(b"\r\n") if line.lower().startswith(b"date: "))
        return len(dates) > 1

    until(dated)


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
