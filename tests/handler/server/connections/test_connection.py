"""Streams on the wire: headers (docs/decisions.md: Minimal chat streams), and what h11 makes of them. Bare sockets."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import h11
import pytest

from lmi.handler.server.connections.connection import in_chunks

from ....kit.api.handler import READ_HEADERS
from ....kit.api.handler import headers_of as usual_headers
from ....kit.api.types import Delta, Event, Finish, Started, Token
from ....kit.hosts.local_server import Make, Running, answer
from ....kit.rows import each_row
from ....kit.waiting import until

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


@each_row("said", SAID)
@each_row("form", FORMS)
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


@each_row(("version", "header"), [("1.1", "Connection: close"), ("1.0", "Accept: */*")])
def test_a_connection_that_is_to_be_closed(running: Make, version: str, header: str) -> None:
    server = running()
    with server.connect() as sock:
        server.engine.say(ask(server, sock, "/chat/sse", header, version=version), *SAID["several"])
        headers = headers_of(sock, b"")
        assert [value for name, value in headers if name == "connection"] == ["close"]


def test_a_whole_response_has_its_length(running: Make) -> None:
    """The minimal chat document, Regular Response Headers: nothing of the connection."""
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
        written.write_chunks([b""])
        server.engine.say(ticket, Delta(0, "", finish=Finish("eos", generated_tokens=1)))
        while not data.endswith(b"\r\n0\r\n\r\n"):
            data += sock.recv(1 << 16)
        assert data.count(b"\r\n0\r\n") == 1


@each_row(
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
