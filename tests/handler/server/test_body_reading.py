"""Bodies of the local server's requests: what is refused before they are read, and how much of them is held.

Sockets are bare, the engine says what it is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import time
from collections.abc import AsyncIterator
from itertools import product
from typing import Any, ClassVar, cast

import pytest

from lmi.handler.server import body_reading
from lmi.handler.server.body_reading import BODIES, SMALL, Bodies, read_body

from ...kit.api.errors import OverloadedError, TimeLimitError
from ...kit.api.handler import Access
from ...kit.api.types import Delta, Finish, Started
from ...kit.hosts import local_server
from ...kit.hosts.local_server import Make, Running, ended
from ...kit.rows import each_row
from ...kit.waiting import until

MEGABYTE = 1 << 20
MOST = 100_000
"""A body, in bytes."""
KEY = "a-key"


def head(length: int | None, path: str = "/invocations", *more: str) -> bytes:
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return "\r\n".join((f"POST {path} HTTP/1.1", "Host: test", size, *more, "", "")).encode()


def answer(sock: socket.socket) -> tuple[int, dict[str, str], Any]:
    """Status, headers and document of the next answer."""
    status, headers, body = local_server.answer(sock)
    return status, headers, json.loads(body)


def silent(sock: socket.socket, seconds: float = 0.1) -> bool:
    """Whether nothing comes for a while."""
    before = sock.gettimeout()
    sock.settimeout(seconds)
    try:
        return not sock.recv(1, socket.MSG_PEEK) and False
    except TimeoutError:
        return True
    finally:
        sock.settimeout(before)


def body_of(size: int, document: str = '{"inputs": "Hi"}') -> bytes:
    return document.encode().ljust(size)


def test_a_body_that_comes_too_slowly(running: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a while, and more of it for what has come; in LMI's form, as nobody knows the dialect."""
    monkeypatch.setattr(body_reading, "PATIENCE_S", 0.5)
    monkeypatch.setattr(body_reading, "SLOWEST", 10_000)
    monkeypatch.setattr(body_reading, "DISCARD_TIMEOUT_S", 0.2)
    server = running()
    with server.connect() as fast, server.connect() as slow:
        for sock in (fast, slow):
            sock.sendall(head(MOST))
        for number in range(10):
            fast.sendall(b" " * (MOST // 10) if number else body_of(MOST // 10))
            with contextlib.suppress(OSError):
                slow.sendall(b" " * 10)
            time.sleep(0.1)
        status, headers, said = answer(slow)
        assert (status, headers.get("connection")) == (424, "close"), said
        expected = r"\d+ bytes of the body came in \d+ seconds, expected 10000 a second from then on"
        assert re.fullmatch(expected, said["error"]), said
        assert ended(slow)
        until(lambda: len(server.engine.generations) == 1)


class LateHttp:
    """A request whose next bytes come just before its time is over, on an event loop that sees both after it."""

    headers: ClassVar[dict[str, str]] = {}

    async def stream(self) -> AsyncIterator[bytes]:
        yield b"{"
        loop = asyncio.get_running_loop()
        come = loop.create_future()
        # Before the timer of the time that is over.
        loop.call_at(0.0, come.set_result, None)
        time.sleep(1.1)  # noqa: ASYNC251 - the loop is to stand still
        await come
        yield b" " * 50_000
        await asyncio.sleep(30)


def test_bytes_that_come_as_the_time_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no whole body."""
    # So long that this process does not stand still as long before.
    monkeypatch.setattr(body_reading, "PATIENCE_S", 1.0)
    # asyncio's own loop, whatever has been made the usual one: its timers that are due have an order.
    loop = asyncio.SelectorEventLoop()
    with contextlib.closing(loop), pytest.raises(TimeLimitError, match="50001 bytes of the body came in 4 seconds"):
        loop.run_until_complete(read_body(cast("Any", LateHttp()), 100_000, Bodies(100_000), 60.0))


def fill(server: Running, sock: socket.socket) -> int:
    """Opens the one request that may be open."""
    return server.ask(sock, {"inputs": "Hi"})


def say(server: Running, ticket: int) -> None:
    server.engine.say(ticket, Started(1), Delta(0, "Hello", finish=Finish("eos", generated_tokens=1)))


ONE = {"max_rolling_batch_size": "1", "max_queued_requests": "0"}

FORMS: dict[str, list[str]] = {
    "/invocations": ["error", "code"],
    "/v1/chat/completions": ["error"],
    "/generate": ["error", "error_type"],
    "/chat/completions?api-version=2024-05-01-preview": ["error", "message", "status"],
}
"""By path, the fields of an error's document."""


def test_a_full_queue_is_told_before_the_body_is_there(running: Make) -> None:
    """In the dialect of the path; nothing of the body is held. What has no body is answered."""
    server = running(**ONE)
    with server.connect() as first:
        ticket = fill(server, first)
        for path, length, sent in product(FORMS, (8 * MEGABYTE, None), (0, 200_000)):
            with server.connect() as second:
                part = (b"%x\r\n" % (2 * sent) if sent and length is None else b"") + b" " * sent
                second.sendall(head(length, path) + part)
                status, headers, document = answer(second)
                assert (status, headers["connection"], headers["retry-after"]) == (429, "close", "1")
                assert list(document) == FORMS[path]
                assert "1 requests are open, expected fewer than 1" in json.dumps(document)
        with server.connect() as second:
            second.sendall(b"GET /v1/models HTTP/1.1\r\nHost: test\r\n\r\n")
            assert answer(second)[0] == 200
        say(server, ticket)
        assert answer(first)[0] == 200
    until(lambda: not server.connections)
    assert len(server.engine.generations) == 1


def test_with_room_the_body_is_waited_for(running: Make) -> None:
    """One below the limit: the same request is read, and served."""
    server = running(max_rolling_batch_size="1", max_queued_requests="1")
    with server.connect() as first, server.connect() as second:
        tickets = [fill(server, first)]
        body = body_of(200_000)
        second.sendall(head(len(body)) + body[:150_000])
        assert silent(second)
        second.sendall(body[150_000:])
        until(lambda: len(server.engine.generations) == 2)
        for ticket, sock in zip((*tickets, 1), (first, second), strict=True):
            say(server, ticket)
            assert answer(sock)[::2] == (200, {"generated_text": "Hello"})


def test_a_short_body_tells_the_dialect(running: Make) -> None:
    """And the connection goes on: what is refused may be tried again on it."""
    server = running(**ONE)
    chat = body_of(SMALL, '{"messages": [{"role": "user", "content": "Hi"}]}')
    with server.connect() as first, server.connect() as second:
        ticket = fill(server, first)
        second.sendall(head(len(chat)) + chat)
        status, headers, document = answer(second)
        assert (status, "connection" in headers) == (429, False)
        assert document["error"]["code"] == OverloadedError.code
        # One byte more, and nobody waits for it.
        with server.connect() as third:
            third.sendall(head(SMALL + 1))
            assert list(answer(third)[2]) == FORMS["/invocations"]
        say(server, ticket)
        assert answer(first)[0] == 200
        second.sendall(head(len(chat)) + chat)
        until(lambda: len(server.engine.generations) == 2)
        say(server, 1)
        assert answer(second)[0] == 200


def test_a_server_that_stops_says_so_before_the_body(running: Make) -> None:
    server = running()
    server.service.stop()
    with server.connect() as sock:
        sock.sendall(head(8 * MEGABYTE, "/v1/completions"))
        status, headers, document = answer(sock)
        assert (status, "retry-after" in headers) == (503, True)
        assert document["error"]["message"] == "the server is shutting down"


def test_a_stranger_is_refused_before_the_body(running: Make) -> None:
    server = running(access=Access(KEY))
    body = body_of(200_000)
    with server.connect() as sock:
        sock.sendall(head(len(body)))
        assert answer(sock)[0] == 401
    with server.connect() as sock:
        sock.sendall(head(len(body), "/invocations", f"Authorization: Bearer {KEY}"))
        assert silent(sock)
        sock.sendall(body)
        until(lambda: len(server.engine.generations) == 1)


def test_a_body_that_is_too_long(running: Make) -> None:
    """It is refused at once, whether it says so or not; at the limit it is read."""
    server = running(max_body_bytes=str(MOST))
    with server.connect() as sock:
        sock.sendall(head(MOST + 1))
        status, headers, document = answer(sock)
        assert (status, headers["connection"]) == (413, "close")
        message = f"the body: expected at most {MOST} bytes (option.max_body_bytes), got {MOST + 1}"
        assert document == {"error": message, "code": 413}
    with server.connect() as sock:
        # Its end need not come.
        sock.sendall(head(None) + b"%x\r\n" % (MOST + 1) + body_of(MOST + 1))
        assert answer(sock)[0] == 413
    with server.connect() as sock:
        sock.sendall(head(MOST))
        assert silent(sock)
        sock.sendall(body_of(MOST))
        until(lambda: len(server.engine.generations) == 1)
        say(server, 0)
        assert answer(sock)[0] == 200
        sock.sendall(head(None) + b"%x\r\n" % MOST + body_of(MOST) + b"\r\n0\r\n\r\n")
        until(lambda: len(server.engine.generations) == 2)


def test_who_sends_all_before_reading_gets_the_answer(running: Make) -> None:
    """What has come is read and dropped before the connection is closed, for that would take the answer with it."""
    server = running(max_body_bytes=str(4 * MEGABYTE))
    body = body_of(5 * MEGABYTE)
    for _ in range(3):
        with server.connect() as sock:
            sock.sendall(head(len(body)) + body)
            time.sleep(0.02)
            assert answer(sock)[0] == 413
            assert ended(sock)


def test_a_body_that_is_refused_is_not_read_for_ever(running: Make) -> None:
    """Of an endless one as much is dropped as a body may have."""
    server = running(max_body_bytes=str(4 * MEGABYTE))
    sent = 0
    with server.connect() as sock:
        sock.sendall(head(1 << 40))
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while sent < 1 << 30:
                sent += sock.send(b" " * 65536)
    assert 4 * MEGABYTE < sent < 64 * MEGABYTE


def test_the_rest_of_a_refused_body_has_little_time(running: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    local_server.discard_within(0.3, monkeypatch)
    server = running(max_body_bytes=str(MOST))
    with server.connect() as sock:
        sock.sendall(head(MOST + 1))
        assert answer(sock)[0] == 413
        assert ended(sock)
    until(lambda: not server.connections)


def test_a_small_body_of_a_refused_request_has_little_time(running: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read before the refusal; one that never comes is refused, as a large one, when its time is over."""
    local_server.discard_within(0.3, monkeypatch)
    server = running(**ONE)
    body = body_of(1000)
    with server.connect() as first, server.connect() as second:
        first.sendall(head(len(body)) + body)
        until(lambda: len(server.engine.generations) == 1)
        second.sendall(head(10))
        assert answer(second)[0] == 429
        assert ended(second)
        until(lambda: server.connections == 1)


def test_who_asks_before_sending_is_told_at_once(running: Make) -> None:
    """Else told to go on."""
    server = running(**ONE)
    body = body_of(1000)
    with server.connect() as first, server.connect() as second:
        first.sendall(head(len(body), "/invocations", "Expect: 100-continue"))
        assert first.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        first.sendall(body)
        until(lambda: len(server.engine.generations) == 1)
        second.sendall(head(len(body), "/invocations", "Expect: 100-continue"))
        assert answer(second)[0] == 429
        assert ended(second)


# --- All bodies together ---


@each_row("more", [-1, 0, 1])
def test_bytes_of_all_bodies(more: int) -> None:
    bodies = Bodies(1000)
    bodies.take(400)
    with pytest.raises(OverloadedError) if more > 0 else contextlib.nullcontext():
        bodies.take(600 + more)
    bodies.take(-600 - more)
    assert bodies.held == 400


def test_bodies_that_are_being_read_are_bounded(running: Make) -> None:
    """One beyond is refused, short ones are not counted, and who ends or leaves makes room."""
    server = running(max_body_bytes=str(MOST))
    bodies = server.bodies
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(server.connect()) for _ in range(BODIES)]
        for sock in slow:
            sock.sendall(head(MOST) + body_of(MOST - 1))
        until(lambda: bodies.held == BODIES * (MOST - 1))
        with server.connect() as one:
            one.sendall(head(MOST) + body_of(MOST - 1))
            status, headers, document = answer(one)
            assert (status, headers["retry-after"]) == (429, "1")
            assert f"expected at most {BODIES * MOST} (8 times option.max_body_bytes)" in document["error"]
        with server.connect() as short:
            short.sendall(head(SMALL) + body_of(SMALL))
            until(lambda: len(server.engine.generations) == 1)
        until(lambda: bodies.held == BODIES * (MOST - 1))
        slow.pop().close()
        until(lambda: bodies.held == (BODIES - 1) * (MOST - 1))
        with server.connect() as one:
            one.sendall(head(MOST) + body_of(MOST))
            until(lambda: len(server.engine.generations) == 2)
        for sock in slow:
            sock.sendall(b" ")
        until(lambda: len(server.engine.generations) == 2 + len(slow))
    assert bodies.held == 0
