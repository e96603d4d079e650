"""The headers of streams on the wire: specs 003, Response Headers, and what h11 makes of them. On bare sockets."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ...kit.api.types import Delta, Event, Finish, Started
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
