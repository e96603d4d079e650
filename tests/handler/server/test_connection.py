"""What is written to a connection around ASGI, as the client's parser reads it. On bare sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h11
import pytest

from lmi.handler.headers import headers_of
from lmi.handler.server import app as server_module
from lmi.handler.server.connection import in_chunks

from ...kit.api.types import Delta, Finish, Started, Token
from ...kit.hosts.local_server import Make, Running, serving

BODY = {"inputs": "Hi", "stream": True}
TEXTS = ["Once", " upon", " a time"]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Make]:
    with serving(tmp_path) as make:
        yield make


def answered(server: Running, sock: socket.socket) -> tuple[h11.Response, list[bytes]]:
    """A stream's response by h11, and its data, chunk by chunk; the connection can be used again."""
    ticket = server.ask(sock, BODY)
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
        monkeypatch.setattr(server_module, "headers_of", lambda reply: {**headers_of(reply), **length})
        for _ in range(2):
            response, data = answered(server, sock)
            assert b"transfer-encoding" not in dict(response.headers)
            assert b"".join(data) == body


def test_nothing_to_write_is_not_the_end(running: Make) -> None:
    """An empty chunk is the last one of a body."""
    server = running()
    with server.connect() as sock:
        ticket = server.ask(sock, BODY)
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
