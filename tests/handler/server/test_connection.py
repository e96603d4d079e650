"""Streams on the wire: headers (specs 003, Response Headers, and what h11 makes of them), chunks. On bare sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h11
import pytest

from lmi.handler.server.connection import in_chunks

from ...kit.api.handler import READ_HEADERS
from ...kit.api.handler import headers_of as usual_headers
from ...kit.api.types import Delta, Event, Finish, Started, Token
from ...kit.hosts.local_server import Make, Running, answer, serving, until

ASKED: dict[str, Any] = {"model": "any", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
LAST = Finish("eos", generated_tokens=1)
FORMS = {
    "lines": ("/chat/completions", "application/json"),
    "events": ("/chat/sse", "text/event-stream"),
    "chat": ("/v1/chat/completions", "text/event-stream"),
}
SAID: dict[str, list[Event]] = {
    "one record": [Started(1), Delta(0, "Hello", finish=LAST)],
    "several": [Started(1), Delta(0, "Hel"), Delta(0, "lo", finish=LAST)],
}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Make]:
    with serving(tmp_path) as make:
        yield make


def ask(server: Running, sock: socket.socket, path: str, *headers: str, version: str = "1.1", **fields: Any) -> int:
    """Sends a request; the number of its generation."""
    number = len(server.engine.generations)
    body = json.dumps({**ASKED, **fields})
    lines = (f"POST {path} HTTP/{version}", "Host: localhost", f"Content-Length: {len(body)}", *headers)
    sock.sendall("\r\n".join((*lines, "", body)).encode())
    until(lambda: len(server.engine.generations) > number)
    return number


def headers_of(sock: socket.socket, end: bytes = b"0\r\n\r\n") -> list[tuple[str, str]]:
    """The headers of a response that ends with `end`, or with the connection."""
    data = b""
    while part := sock.recv(1 << 16):
        data += part
        if end and data.endswith(end):
            break
    status, *lines = data.partition(b"\r\n\r\n")[0].decode().lower().split("\r\n")
    assert status == "http/1.1 200 ok"
    return [(name, value) for name, _, value in (line.partition(": ") for line in lines)]


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("form", FORMS)
def test_a_stream_keeps_the_connection(running: Make, form: str, said: str) -> None:
    """A stream is one on the wire too where all of it is there at once; the connection serves the next request."""
    server = running()
    path, content_type = FORMS[form]
    with server.connect() as sock:
        for _ in range(2):
            server.engine.say(ask(server, sock, path), *SAID[said])
            headers = headers_of(sock)
            assert [value for name, value in headers if name == "connection"] == ["keep-alive"]
            assert [value for name, value in headers if name == "transfer-encoding"] == ["chunked"]
            assert [value.partition(";")[0] for name, value in headers if name == "content-type"] == [content_type]
            if form != "chat":
                assert ("cache-control", "no-cache") in headers


@pytest.mark.parametrize(("version", "header"), [("1.1", "Connection: close"), ("1.0", "Accept: */*")])
def test_a_connection_that_is_to_be_closed(running: Make, version: str, header: str) -> None:
    server = running()
    with server.connect() as sock:
        server.engine.say(ask(server, sock, "/chat/sse", header, version=version), *SAID["several"])
        headers = headers_of(sock, b"")
        assert [value for name, value in headers if name == "connection"] == ["close"]


def test_a_whole_response_has_its_length(running: Make) -> None:
    """Specs 003, Regular Response Headers: nothing of the connection."""
    server = running()
    with server.connect() as sock:
        server.engine.say(ask(server, sock, "/chat/completions", stream=False), *SAID["one record"])
        headers = dict(headers_of(sock, b"}"))
    assert "connection" not in headers
    assert "transfer-encoding" not in headers
    assert int(headers["content-length"]) > 0


@pytest.mark.parametrize("limit", ["1000", "100000"])
def test_behind_a_content_filter_a_whole_answer_is_whole(running: Make, tmp_path: Path, limit: str) -> None:
    """What a filter judges while it is generated is a stream only where the client asks for one; it has a length and
    a limit."""
    # A name that no other test has: the module stays.
    (tmp_path / "accepting.py").write_text("def judge(text):\n    return None\n")
    server = running(content_filter="accepting:judge", max_answer_bytes=limit)
    with server.connect() as sock:
        number = ask(server, sock, "/v1/chat/completions", stream=False)
        server.engine.say(number, Started(1), *(Delta(0, "a" * 100) for _ in range(30)), Delta(0, "", finish=LAST))
        status, headers, body = answer(sock)
    told = json.loads(body)
    assert "transfer-encoding" not in headers
    if limit == "1000":
        assert status == 400
        assert "max_answer_bytes" in told["error"]["message"]
    else:
        assert status == 200
        assert told["choices"][0]["message"]["content"] == "a" * 3000


# --- Chunks ---

LINES = {"inputs": "Hi", "stream": True}
TEXTS = ["Once", " upon", " a time"]


def answered(server: Running, sock: socket.socket) -> tuple[h11.Response, list[bytes]]:
    """A stream's response by h11, and its data, chunk by chunk; the connection can be used again."""
    ticket = server.ask(sock, LINES)
    server.engine.say(ticket, Started(1))
    for number, text in enumerate(TEXTS):
        server.engine.say(ticket, Delta(0, text, (Token(number, text, -0.5),)))
    server.engine.say(ticket, Delta(0, "", finish=Finish("eos", generated_tokens=3)))
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="POST", target="/", headers=[("Host", "test")]))
    client.send(h11.EndOfMessage())
    response: Any = None
    data: list[bytes] = []
    while not isinstance(event := client.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            client.receive_data(sock.recv(1 << 16))
        elif isinstance(event, h11.Response):
            response = event
        elif isinstance(event, h11.Data):
            data.append(bytes(event.data))
    assert client.trailing_data[0] == b""
    return response, data


def test_records_come_as_chunks_again_and_again_on_one_connection(running: Make) -> None:
    server = running()
    with server.connect() as sock:
        first, records = answered(server, sock)
        assert dict(first.headers)[b"transfer-encoding"] == b"chunked"
        assert [record.endswith(b"\n") for record in records] == [True] * 4
        assert b"".join(answered(server, sock)[1]) == b"".join(records)


def test_a_stream_that_tells_its_length_has_no_chunks(running: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dialect of the user's may give any header."""
    server = running()
    with server.connect() as sock:
        body = b"".join(answered(server, sock)[1])
        length = {"Content-Length": str(len(body))}
        for module in READ_HEADERS:
            monkeypatch.setattr(module, "headers_of", lambda reply: {**usual_headers(reply), **length})
        for _ in range(2):
            response, data = answered(server, sock)
            assert b"transfer-encoding" not in dict(response.headers)
            assert b"".join(data) == body


def test_nothing_to_write_is_not_the_end(running: Make) -> None:
    """An empty chunk is the last one of a body."""
    server = running()
    with server.connect() as sock:
        ticket = server.ask(sock, LINES)
        server.engine.say(ticket, Started(1), Delta(0, "Once", (Token(1, "Once", -0.5),)))
        data = sock.recv(1 << 16)
        (connection,) = server.uvicorn.server_state.connections
        written: Any = connection
        written.write_chunk(b"")
        server.engine.say(ticket, Delta(0, "", finish=Finish("eos", generated_tokens=1)))
        while not data.endswith(b"\r\n0\r\n\r\n"):
            data += sock.recv(1 << 16)
        assert data.count(b"\r\n0\r\n") == 1


@pytest.mark.parametrize(
    ("version", "status", "header", "expected"),
    [
        ("1.1", 200, "x", True),
        ("1.1", 424, "x", True),
        ("1.0", 200, "x", False),
        ("1.1", 204, "x", False),
        ("1.1", 304, "x", False),
        ("1.1", 200, "content-length", False),
    ],
)
def test_which_responses_come_in_chunks(version: str, status: int, header: str, expected: bool) -> None:
    """As h11 decides it for the same response."""
    assert in_chunks({"http_version": version}, status, [header]) == expected
    server = h11.Connection(h11.SERVER)
    server.receive_data(f"GET / HTTP/{version}\r\nHost: test\r\n\r\n".encode())
    server.next_event()
    server.next_event()
    head = server.send(h11.Response(status_code=status, headers=[(header, "3")]))
    assert head is not None
    assert (b"transfer-encoding: chunked" in head.lower()) == expected


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
