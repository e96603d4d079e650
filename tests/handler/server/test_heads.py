"""Heads of requests, and connections: uvicorn's limits as handler/server/run.py sets them. On bare sockets."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi.handler.server.access import Access
from lmi.handler.server.run import HEAD_BYTES, http_server

from ...kit.api.handler import Service, connection, waiting
from ...kit.api.options import make_settings
from ...kit.api.types import Delta, Finish, Started
from ...kit.hosts.local_server import Make, Running, answer, ended
from ...kit.rows import each_row
from ...kit.user_code.engine import ScriptedEngine
from ...kit.waiting import until

PING = b"GET /ping HTTP/1.1\r\nHost: test\r\n"
CHUNKED = b"POST /invocations HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
ALIVE = b'{"status":"Healthy"}'


def refused(sock: socket.socket) -> bool:
    """Whether the server says that what has come is no request, and ends the connection."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := sock.recv(1 << 16):
            data += part
    return data.startswith(b"HTTP/1.1 400 ") and b"Invalid HTTP request received." in data


def head(size: int, first: bytes = PING) -> bytes:
    """A head of so many bytes."""
    rest = size - len(first) - len(b"X: \r\n\r\n")
    return first + b"X: " + b"a" * rest + b"\r\n\r\n"


def test_a_long_head_is_served(running: Make) -> None:
    """Up to the limit, by a header or by the path, in one piece or in several; beyond it none is."""
    server = running()
    size, start, end = HEAD_BYTES, b"GET /ping?", b" HTTP/1.1\r\nHost: test\r\n\r\n"
    for sent in (head(size), start + b"a" * (size - len(start) - len(end)) + end):
        assert len(sent) == size
        for pieces in (1, 7):
            with server.connect() as sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for piece in range(pieces):
                    sock.sendall(sent[piece * size // pieces : (piece + 1) * size // pieces])
                    time.sleep(0.01)
                assert answer(sock)[::2] == (200, ALIVE)
    with server.connect() as sock:
        sock.sendall(head(HEAD_BYTES + 100)[: HEAD_BYTES + 1])
        assert refused(sock)


ENDLESS = {
    "a header": (PING + b"X: ", b"a"),
    "white space": (PING + b"X:", b" "),
    "a header's name": (PING, b"a"),
    "headers": (PING, b"X: a\r\n"),
    "the path": (b"GET /", b"a"),
    "empty lines": (b"", b"\r\n"),
    "a trailer": (CHUNKED + b"0\r\nX: ", b"a"),
    "trailers": (CHUNKED + b"0\r\n", b"X: a\r\n"),
    "what a chunk is told with": (CHUNKED + b"1;", b"a"),
    "a second one": (PING + b"\r\n" + PING + b"X: ", b"a"),
}


def test_one_without_end(running: Make) -> None:
    """The connection ends, and nothing of it is kept."""
    server = running()
    process = psutil.Process()
    for start, (first, then) in ENDLESS.items():
        part = then * (65536 // len(then))
        with server.connect() as sock:
            sock.sendall(first)
            before = process.memory_info().rss
            sent = 0
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                while sent < 256 << 20:
                    sent += sock.send(part)
            assert sent < 32 << 20, start
            until(lambda: not server.connections)
        assert process.memory_info().rss - before < 32 << 20, start
    with server.connect() as sock:
        sock.sendall(PING + b"\r\n")
        assert answer(sock)[0] == 200


def test_what_comes_while_another_is_answered_waits(running: Make) -> None:
    """Its error does not get into the other's answer, and no more of it is held than of a head."""
    server = running()
    with server.connect() as sock:
        ticket = server.ask(sock, {"messages": [{"role": "user", "content": "Hi"}], "stream": True})
        server.engine.say(ticket, Started(1), Delta(0, "Hello"))
        data = sock.recv(1 << 16)
        assert data.startswith(b"HTTP/1.1 200 ")
        sock.settimeout(0.3)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 256 << 20:
                sent += sock.send(b"a" * 65536)
        assert sent < 32 << 20
        sock.settimeout(30)
        server.engine.say(ticket, Delta(0, "", finish=Finish("eos", generated_tokens=1)))
        with contextlib.suppress(ConnectionResetError):
            while part := sock.recv(1 << 16):
                data += part
        whole, _, rest = data.partition(b"0\r\n\r\n")
        assert whole.count(b"HTTP/1.1 ") == 1
        assert rest == b"" or rest.startswith(b"HTTP/1.1 400 ")
    until(lambda: not server.connections)


def test_a_bad_head_and_bad_chunks_are_told_of(running: Make) -> None:
    server = running()
    for sent in (b"What is this?\r\n\r\n", CHUNKED + b"no number\r\n"):
        with server.connect() as sock:
            sock.sendall(sent)
            assert refused(sock)
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


def test_heads_in_pieces_on_one_connection(running: Make) -> None:
    server = running()
    with server.connect() as sock:
        for _ in range(3):
            sock.sendall(PING)
            time.sleep(0.05)
            sock.sendall(b"\r\n")
            assert answer(sock)[::2] == (200, ALIVE)


# --- Connections ---


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "USED_S", 0.0)


@pytest.mark.usefixtures("_at_once")
def test_one_connection_too_many(running: Make) -> None:
    """Where all have requests the next one is refused, and ends; one that waits for a request gives way to it."""
    server = running(most=8)
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(server.connect()) for _ in range(server.most)]
        until(lambda: server.connections == server.most)
        tickets = [server.ask(sock, {"inputs": "Hi"}) for sock in opened]
        for _ in range(20):
            with server.connect() as more:
                more.sendall(PING + b"\r\n")
                status, headers, _ = answer(more)
                assert (status, headers["connection"]) == (503, "close")
                assert ended(more)
        for sock, ticket in zip(opened, tickets, strict=True):
            tell(server, sock, ticket)
        with server.connect() as more:
            serve(server, more)
            assert ended(opened[0])
            serve(server, opened[1])
            with server.connect() as another:
                serve(server, another)
                # It had waited longer than the one that has just been used.
                assert ended(opened[2])
                serve(server, opened[1])
    until(lambda: not server.connections)


def test_one_that_has_just_come_or_been_used_does_not_give_way(running: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "USED_S", 1.0)
    server = running(most=2)
    with contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(server.connect()) for _ in range(2))
        until(lambda: server.connections == server.most)
        for after in (0.0, 0.7):
            time.sleep(after)
            serve(server, second)
            with server.connect() as more:
                more.sendall(PING + b"\r\n")
                assert answer(more)[0] == 503
        time.sleep(0.5)
        with server.connect() as more:
            serve(server, more)
            assert ended(first)
        serve(server, second)


@pytest.mark.usefixtures("_at_once")
def test_one_whose_request_has_arrived_does_not_give_way(running: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read or not: the one that comes meanwhile is refused, and no other one's request is."""
    comes, sent = threading.Event(), threading.Event()
    make_room = waiting.Waiting.make_room

    def once_they_have_sent(self: waiting.Waiting, newest: connection.Connection, limit: int) -> bool:
        if len(newest.connections) == limit:
            comes.set()
            assert sent.wait(30)
        return make_room(self, newest, limit)

    monkeypatch.setattr(waiting.Waiting, "make_room", once_they_have_sent)
    server = running(most=8)
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(server.connect()) for _ in range(server.most)]
        until(lambda: server.connections == server.most)
        another = stack.enter_context(server.connect())
        assert comes.wait(30)
        for sock in [*opened, another]:
            sock.sendall(PING + b"\r\n")
        sent.set()
        assert [answer(sock)[0] for sock in [*opened, another]] == [200] * server.most + [503]


@pytest.mark.usefixtures("_at_once")
def test_those_that_send_nothing_keep_nobody_out(running: Make) -> None:
    server = running(most=8)
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(server.connect())
        with server.connect() as sock:
            serve(server, sock)
        assert server.connections <= server.most


@pytest.mark.parametrize("pieces", [[], [PING], [PING, b"A: b\r\n" * 3]], ids=["nothing", "a part", "parts"])
@pytest.mark.parametrize("before", [0, 2])
def test_a_head_that_does_not_come(
    running: Make, monkeypatch: pytest.MonkeyPatch, pieces: list[bytes], before: int
) -> None:
    """However slowly its parts come; where none has come, after the time that connections may be idle."""
    monkeypatch.setattr(connection, "HEAD_S", 0.4)
    server = running(keep_alive=1)
    with server.connect() as sock:
        for _ in range(before):
            serve(server, sock)
        for piece in pieces:
            sock.sendall(piece)
            time.sleep(0.25)
        if pieces:
            status, headers, said = answer(sock)
            assert (status, headers["connection"], said) == (408, "close", b"The request's head came too slowly")
        assert ended(sock)
    until(lambda: not server.connections)


def serve(server: Running, sock: socket.socket) -> None:
    """A request is served on the connection."""
    tell(server, sock, server.ask(sock, {"inputs": "Hi"}))


def tell(server: Running, sock: socket.socket, ticket: int) -> None:
    """The request that was asked on it is answered."""
    server.engine.say(ticket, Started(1), Delta(0, "Hello", finish=Finish("eos", generated_tokens=1)))
    assert answer(sock)[::2] == (200, b'{"generated_text":"Hello"}')


LIMITS = {
    "enough": ((20_000, 20_000), 1064, None),
    "raised": ((300, 20_000), 1064, (1256, 20_000)),
    "raised, without a hard one": ((300, resource.RLIM_INFINITY), 1064, (1256, resource.RLIM_INFINITY)),
    "none": ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), 1064, None),
    "as far as it may": ((300, 1024), 832, (1024, 1024)),
    "few": ((100, 100), 50, (100, 100)),
}
"""The limit of open files, soft and hard; the connections that are served; what the limit is set to."""


@each_row("case", LIMITS, ids=list(LIMITS))
def test_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, case: str) -> None:
    """Connections for twice the requests that may be open, and 64; with few descriptors, what these allow."""
    caplog.clear()
    limits, most, raised = LIMITS[case]
    options = {"max_rolling_batch_size": "100", "max_queued_requests": "400"}
    service = Service(make_settings(tmp_path, **options), ScriptedEngine())
    told: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda which, both: told.append(both))
    server = http_server(service, [], access=Access(), grace=1.0)
    assert server.config.limit_concurrency == most + 1
    assert told == ([raised] if raised else [])
    assert [record.args for record in caplog.records] == ([] if most == 1064 else [(limits[1], most, 1064)])


TARGETS: list[tuple[str, str, int | None]] = [
    ("http://localhost:8080/v1/models", "localhost", 200), ("HTTP://127.0.0.1/v1/models?a=b", "localhost", 200),
    ("https://localhost/v1/%6dodels", "rebound.example", 200), ("http://localhost", "localhost", None),
    ("http://localhost?a=b", "localhost", None), ("http://localhost/nothing", "localhost", 404),
    # The target's name is the one that counts.
    ("http://rebound.example/v1/models", "localhost", 403), ("http://a@localhost/v1/models", "localhost", 403),
    ("http:///v1/models", "localhost", 403), ("ftp://localhost/v1/models", "localhost", 404),
    ("*", "localhost", 404), ("localhost:80", "localhost", 404),
    # SageMaker's route of OpenAI's API.
    ("/openai/v1/models", "localhost", 200), ("/openai/v1/models/nothing?a=b", "localhost", 404),
    ("http://localhost/openai/v1/models", "rebound.example", 200), ("/openai/v1/models", "rebound.example", 403),
    ("/openai/v1/", "localhost", 404), ("/openai/ping", "localhost", 404), ("/openai/v2/models", "localhost", 404),
]  # fmt: skip


def test_targets_that_are_whole_urls(running: Make) -> None:
    """As clients ask a proxy, and servers have to take it (RFC 9112, 3.2.2)."""
    server = running(access=Access(names=frozenset()))
    with server.connect() as sock:
        # It has the page where that is installed.
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        root = answer(sock)[0]
        assert root != 404
        for target, host, status in TARGETS:
            sock.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert answer(sock)[0] == (status or root), target


def test_a_request_to_a_whole_url_is_served(running: Make) -> None:
    server = running(access=Access(names=frozenset()))
    server.engine.submit_then = [Started(1), Delta(0, "Hello", finish=Finish("eos", generated_tokens=1))]
    body = b'{"inputs": "Hi"}'
    with server.connect() as sock:
        for target in (f"http://localhost:{server.port}/invocations", "/invocations"):
            head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            sock.sendall(head.encode() + body)
            assert answer(sock)[::2] == (200, b'{"generated_text":"Hello"}')
