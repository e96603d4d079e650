"""Heads of requests, and connections: what uvicorn holds without a limit. On bare sockets; the limits are
handler/server/http_protocol.py's.
"""

from __future__ import annotations

import contextlib
import json
import logging
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi.handler.server import run as listening
from lmi.handler.server.http_protocol import HEAD_BYTES, HEADERS, room
from lmi.handler.service import Service
from lmi.model.errors import OverloadedError
from lmi.model.events import Delta, Finish, Started
from lmi.model.options import settings_of

from ...kit.local_server import Make, Running, answer, serving, until
from ...kit.user_code.engine import ScriptedEngine

PING = b"GET /ping HTTP/1.1\r\nHost: test\r\n"
ALIVE = b'{"status":"Healthy"}'


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Make]:
    with serving(tmp_path) as make:
        yield make


def ended(sock: socket.socket) -> bool:
    """Whether the server ends the connection, without a further answer."""
    with contextlib.suppress(ConnectionResetError):
        return sock.recv(1) == b""
    return True


def head(size: int, first: bytes = PING) -> bytes:
    """A head of so many bytes."""
    rest = size - len(first) - len(b"X: \r\n\r\n")
    return first + b"X: " + b"a" * rest + b"\r\n\r\n"


@pytest.mark.parametrize("pieces", [1, 7])
@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("where", ["header", "path"])
def test_bytes(running: Make, where: str, more: int, pieces: int) -> None:
    """At the limit, one below and one above; in one piece or in several."""
    server = running()
    size = HEAD_BYTES + more
    if where == "path":
        start, end = b"GET /ping?", b" HTTP/1.1\r\nHost: test\r\n\r\n"
        sent = start + b"a" * (size - len(start) - len(end)) + end
    else:
        sent = head(size)
    assert len(sent) == size
    with server.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in range(pieces):
            sock.sendall(sent[piece * size // pieces : (piece + 1) * size // pieces])
            time.sleep(0.01)
        status, headers, body = answer(sock)
        if more <= 0:
            assert (status, body) == (200, ALIVE)
            return
        assert (status, headers["connection"], headers["content-type"]) == (431, "close", "application/json")
        error = f"the head of the request: expected at most {HEAD_BYTES} bytes"
        assert json.loads(body) == {"error": error, "code": 431}
        assert ended(sock)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_number_of_headers(running: Make, more: int) -> None:
    server = running()
    lines = b"".join(b"X-%d: a\r\n" % number for number in range(HEADERS - 1 + more))
    with server.connect() as sock:
        sock.sendall(PING + lines + b"\r\n")
        status, _, body = answer(sock)
        if more <= 0:
            assert (status, body) == (200, ALIVE)
            return
        assert (status, json.loads(body)) == (431, {"error": f"more than {HEADERS} headers", "code": 431})
        assert ended(sock)


ENDLESS = {
    "a header": (PING + b"X: ", b"a"),
    "white space": (PING + b"X:", b" "),
    "a header's name": (PING, b"a"),
    "headers": (PING, b"X: a\r\n"),
    "the path": (b"GET /", b"a"),
    "empty lines": (b"", b"\r\n"),
    "a trailer": (b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"a"),
    "trailers": (b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: a\r\n"),
    "what a chunk is told with": (b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a"),
    "a second one": (PING + b"\r\n" + PING + b"X: ", b"a"),
}


@pytest.mark.parametrize("start", ENDLESS, ids=list(ENDLESS))
def test_one_without_end(running: Make, start: str) -> None:
    """The connection ends, and nothing of it is kept."""
    server = running()
    first, then = ENDLESS[start]
    part = then * (65536 // len(then))
    process = psutil.Process()
    with server.connect() as sock:
        sock.sendall(first)
        before = process.memory_info().rss
        sent = 0
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while sent < 256 << 20:
                sent += sock.send(part)
        assert sent < 32 << 20
        until(lambda: not server.connections)
    assert process.memory_info().rss - before < 32 << 20
    with server.connect() as sock:
        sock.sendall(PING + b"\r\n")
        assert answer(sock)[0] == 200


def test_a_head_that_is_bad_while_another_is_answered_ends_the_connection(running: Make) -> None:
    """Its error must not get into the other's answer."""
    server = running()
    with server.connect() as sock:
        ticket = server.ask(sock, {"messages": [{"role": "user", "content": "Hi"}], "stream": True})
        server.engine.say(ticket, Started(1), Delta(0, "Hello"))
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            sock.sendall(head(HEAD_BYTES + 1))
        until(lambda: server.engine.aborted == [ticket])
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while part := sock.recv(1 << 16):
                data += part
        assert b"HTTP/1.1" not in data


def test_a_bad_head_is_told_of(running: Make) -> None:
    server = running()
    with server.connect() as sock:
        sock.sendall(b"What is this?\r\n\r\n")
        status, headers, body = answer(sock)
        assert (status, headers["connection"]) == (400, "close")
        assert json.loads(body) == {"error": "Invalid HTTP request received.", "code": 400}
        assert ended(sock)


def test_a_body_in_bad_chunks_is_told_of(running: Make) -> None:
    server = running()
    with server.connect() as sock:
        sock.sendall(b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n")
        assert answer(sock)[0] == 400
        assert ended(sock)
    assert not server.engine.generations


def test_a_request_to_upgrade_is_a_request(running: Make, caplog: pytest.LogCaptureFixture) -> None:
    """What comes after it fills no log."""
    server = running()
    with server.connect() as sock:
        sock.sendall(PING + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert answer(sock)[::2] == (200, ALIVE)
        for _ in range(20):
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                sock.sendall(b"something else")
            time.sleep(0.01)
    until(lambda: not server.connections)
    assert len(caplog.records) < 5


# --- Time ---


def test_a_head_that_comes_too_late(running: Make) -> None:
    server = running(head_seconds=0.3)
    with server.connect() as sock:
        sock.sendall(PING)
        status, headers, body = answer(sock)
        assert (status, headers["connection"]) == (408, "close")
        error = "the head of the request was not complete within 0.3 seconds"
        assert json.loads(body) == {"error": error, "code": 408}
        assert ended(sock)
    until(lambda: not server.connections)


def test_a_head_that_comes_in_drops(running: Make) -> None:
    """Each byte is in time, the head is not."""
    server = running(head_seconds=0.5)
    with server.connect() as sock:
        sock.settimeout(0.05)
        sock.sendall(PING + b"X: ")
        data = b""
        deadline = time.monotonic() + 20
        while not data:
            assert time.monotonic() < deadline
            with contextlib.suppress(TimeoutError):
                sock.sendall(b"a")
                data = sock.recv(100)
    assert data.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("first", [b"", b"\r\n", PING + b"\r\n" + b"\r\n"], ids=["never", "line", "later"])
def test_a_connection_that_asks_nothing(running: Make, first: bytes) -> None:
    """Or nothing more, but sends something at which uvicorn does not count it as idle any longer."""
    server = running(head_seconds=0.3)
    server.uvicorn.config.timeout_keep_alive = 600
    with server.connect() as sock:
        sock.sendall(first)
        if first.startswith(PING):
            assert answer(sock)[0] == 200
            sock.sendall(b"\r\n")
        data = b""
        with contextlib.suppress(ConnectionResetError):
            data = sock.recv(1000)
        assert not data or data.startswith(b"HTTP/1.1 408 ")
    until(lambda: not server.connections)


def test_a_head_in_time(running: Make) -> None:
    """In pieces, again and again on one connection, which lives longer than a head may take; so does an answer."""
    server = running(head_seconds=1.0)
    with server.connect() as sock:
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            sock.sendall(PING)
            time.sleep(0.2)
            sock.sendall(b"\r\n")
            assert answer(sock)[::2] == (200, ALIVE)
        ticket = server.ask(sock, {"inputs": "Hi"})
        time.sleep(1.5)
        server.engine.say(ticket, Started(1), Delta(0, "Hello", finish=Finish("eos", generated_tokens=1)))
        assert answer(sock)[::2] == (200, b'{"generated_text":"Hello"}')


def test_an_idle_connection_has_uvicorns_time(running: Make) -> None:
    server = running(head_seconds=0.3)
    server.uvicorn.config.timeout_keep_alive = 2
    with server.connect() as sock:
        sock.sendall(PING + b"\r\n")
        assert answer(sock)[0] == 200
        time.sleep(1.0)
        sock.sendall(PING + b"\r\n")
        assert answer(sock)[0] == 200


# --- Connections ---


def ask(sock: socket.socket, path: bytes = b"/invocations") -> tuple[int, dict[str, str], bytes]:
    body = b'{"messages": [{"role": "user", "content": "Hi"}]}'
    sock.sendall(b"POST %s HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n%s" % (path, len(body), body))
    return answer(sock)


def full(server: Running, stack: contextlib.ExitStack) -> list[socket.socket]:
    """As many connections as there may be."""
    opened = [stack.enter_context(server.connect()) for _ in range(server.door.most)]
    until(lambda: server.connections == server.door.most)
    return opened


def test_one_connection_too_many(running: Make) -> None:
    """Up to the limit requests are served; on the next connection they are refused, and it ends. Health is told."""
    server = running(most=8)
    with contextlib.ExitStack() as stack:
        opened = full(server, stack)
        ticket = server.ask(opened[-1], {"inputs": "Hi"})
        server.engine.say(ticket, Started(1), Delta(0, "Hello", finish=Finish("eos", generated_tokens=1)))
        assert answer(opened[-1])[0] == 200
        for path in (b"/invocations", b"/v1/chat/completions", b"/v1/completions"):
            with server.connect() as more:
                status, headers, body = ask(more, path)
                assert (status, headers["connection"], headers["retry-after"]) == (429, "close", "1")
                assert json.loads(body)["error"]["message"].startswith("too many connections are open")
                assert ended(more)
        with server.connect() as more:
            for path in (b"/ping", b"/health"):
                more.sendall(PING.replace(b"/ping", path) + b"\r\n")
                assert answer(more)[0] == 200
        opened.pop(0).close()
        until(lambda: server.connections < server.door.most)
        with server.connect() as more:
            ticket = server.ask(more, {"inputs": "Hi"})
            server.engine.say(ticket, Started(1), Delta(0, "Hello", finish=Finish("eos", generated_tokens=1)))
            assert answer(more)[0] == 200
    assert [len(server.engine.generations), server.service.metrics.errors[OverloadedError.code]] == [2, 3]


def test_far_too_many_connections(running: Make) -> None:
    """They are cut off at once: what is held is bounded, whatever comes; those that are open are served."""
    server = running(most=8)
    bound = server.door.most + 4
    with contextlib.ExitStack() as stack:
        (first, *_) = full(server, stack)
        cut = 0
        for _ in range(200):
            sock = stack.enter_context(server.connect())
            sock.settimeout(0.01)
            with contextlib.suppress(TimeoutError):
                cut += ended(sock)
            assert server.connections <= bound
        assert cut >= 190
        first.sendall(PING + b"\r\n")
        assert answer(first)[0] == 200


def test_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Twice the requests that may be open, and as many that are refused; with few descriptors, what these allow."""
    options = {"max_rolling_batch_size": "100", "max_queued_requests": "400"}
    settings = settings_of(options, model_dir=str(tmp_path))
    limits = [300, 20000]
    set_to: list[Any] = []

    def setrlimit(_which: int, both: tuple[int, int]) -> None:
        assert both[0] <= both[1]
        set_to.append(both)

    monkeypatch.setattr(resource, "getrlimit", lambda which: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    with caplog.at_level(logging.WARNING):
        assert room(settings) == (1064, 1064)
        ((soft, hard),) = set_to
        assert 2 * 1064 < soft < 2500
        assert hard == 20000
        limits[:] = [soft, 20000]
        assert room(settings) == (1064, 1064)
        limits[:] = [300, resource.RLIM_INFINITY]
        monkeypatch.setattr(resource, "setrlimit", lambda which, both: set_to.append(both))
        assert room(settings) == (1064, 1064)
        assert len(set_to) == 2
        limits[:] = [1500, 1500]
        assert room(settings) == (1064, 1500 - 192 - 1064)
        assert not caplog.records
        limits[:] = [1024, 1024]
        assert room(settings) == (739, 93)
        (record,) = caplog.records
    assert record.getMessage() == "the limit of open files, 1024, is room for 739 connections, not for 1064"
    limits[:] = [100, 100]
    assert room(settings) == (44, 6)
    small = settings_of({"max_rolling_batch_size": "8", "max_queued_requests": "8"}, model_dir=str(tmp_path))
    limits[:] = [resource.RLIM_INFINITY, resource.RLIM_INFINITY]
    assert room(small) == (96, 1024)
    monkeypatch.setattr(listening, "room", lambda _settings: (44, 6))
    service = Service(small, ScriptedEngine())
    door: Any = listening.http_server(service, "127.0.0.1", 0, api_key=None, grace=1.0).config.http
    assert (door.crowded(44), door.crowded(45), door.crammed(50), door.crammed(51)) == (False, True, False, True)
