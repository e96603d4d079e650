"""The client of `lmi chat`, at servers that answer as they are told."""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, cast

import pytest

from lmi.handler.commands.chat import client
from lmi.handler.commands.chat.client import Answer, ChatClient, ChatError, Piece

from ....kit.api.errors import OptionError
from ....kit.hosts.host import free_port
from ....kit.rows import each_row

Serve = Callable[[bytes], str]


class Told(HTTPServer):
    """Answers each POST with `said`."""

    said: bytes
    status = 200
    asked: list[tuple[str, Any, Any]]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(b'{"data": [{"id": "first"}, {"id": "second"}]}', 200)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = cast(Told, self.server)
        server.asked.append((self.path, body, dict(self.headers)))
        self._answer(server.said, server.status)

    def _answer(self, body: bytes, status: int) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[Told]:
    with Told(("127.0.0.1", 0), Handler) as told:
        told.said, told.asked = b"", []
        thread = threading.Thread(target=told.serve_forever, args=(0.01,))
        thread.start()
        yield told
        told.shutdown()
        thread.join()


def url(server: HTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def events(*chunks: object) -> bytes:
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def call(index: int, **parts: Any) -> dict[str, Any]:
    given = {name: parts.pop(name) for name in ("name", "arguments") if name in parts}
    return chunk({"tool_calls": [{"index": index, "function": given, **parts}]})


MESSAGES = [{"role": "user", "content": "Hi"}]


@each_row("key", [b"a key", "clé".encode(), "ключ".encode(), b"cl\xe9"])
def test_a_key_is_sent_as_the_environment_has_it(server: Told, key: bytes) -> None:
    server.said = events(chunk({"content": "Hello"}, "stop"))
    list(ChatClient(url(server), os.fsdecode(key)).ask(MESSAGES, [], Answer()))
    _, _, headers = server.asked[-1]
    assert headers["Authorization"].encode("latin-1") == b"Bearer " + key


def test_an_answer(server: Told) -> None:
    """Text, reasoning by either name, and how many tokens."""
    server.said = b": a comment\n\n" + events(
        chunk({"role": "assistant", "content": ""}), chunk({"reasoning_content": "Hm"}), chunk({"reasoning": "."}),
        chunk({"content": "Hel"}), chunk({"content": "lo 👋"}), chunk({}, "stop"),
        {"choices": [], "usage": {"completion_tokens": 5}},
    )  # fmt: skip
    answer = Answer()
    assert list(ChatClient(url(server), "a key").ask(MESSAGES, [], answer)) == [
        Piece("reasoning", "Hm"), Piece("reasoning", "."), Piece("text", "Hel"), Piece("text", "lo 👋"),
    ]  # fmt: skip
    assert answer == Answer("Hello 👋", "Hm.", [], "stop", 5)
    assert answer.message == {"role": "assistant", "content": "Hello 👋"}
    ((path, body, headers),) = server.asked
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "first", "messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    assert headers["Authorization"] == "Bearer a key"


def test_calls(server: Told) -> None:
    server.said = events(
        call(0, id="a", name="weather"), call(0, arguments='{"city":'), call(0, arguments=' "Paris"}'),
        call(1, id="b", name="book", arguments="{}"), chunk({}, "tool_calls"),
    )  # fmt: skip
    answer, tools = Answer(), [{"type": "function"}]
    pieces = list(ChatClient(f"{url(server)}/v1/", model="mine").ask(MESSAGES, tools, answer))
    assert [(piece.call, piece.text) for piece in pieces] == [
        (0, "weather"), (0, '{"city":'), (0, ' "Paris"}'), (1, "book"), (1, "{}"),
    ]  # fmt: skip
    assert answer.message["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}},
        {"id": "b", "type": "function", "function": {"name": "book", "arguments": "{}"}},
    ]
    ((path, body, headers),) = server.asked
    assert (path, body["model"], body["tools"]) == ("/v1/chat/completions", "mine", tools)
    assert "Authorization" not in headers


@each_row(
    ("status", "said", "message"),
    [
        (401, b'{"error": {"message": "a key is needed"}}', "a key is needed (HTTP status 401)"),
        (424, b'{"error": "too long"}', "too long (HTTP status 424)"),
        (502, b"<html>bad</html>", "<html>bad</html> (HTTP status 502)"),
        (503, b"", "Service Unavailable (HTTP status 503)"),
        (200, events(chunk({"content": "He"}), {"error": {"message": "shutting down"}}), "shutting down"),
        (200, b'data: {"choices": []}\n\n', "the answer ended before its end"),
        (200, b"data: not json\n\n", "the answer ended before its end"),
    ],
)
def test_no_answer(server: Told, status: int, said: bytes, message: str) -> None:
    server.status, server.said = status, said
    with pytest.raises(ChatError) as caught:
        list(ChatClient(url(server), model="mine").ask(MESSAGES, [], Answer()))
    assert caught.value.message == message


def test_nobody_is_there() -> None:
    port = free_port()
    with pytest.raises(ChatError) as caught:
        list(ChatClient(f"http://127.0.0.1:{port}").ask(MESSAGES, [], Answer()))
    assert caught.value.message == f"http://127.0.0.1:{port}: nobody listens there"
    with pytest.raises(ChatError, match=r"http://no-such-host\.invalid: there is no such host"):
        list(ChatClient("http://no-such-host.invalid").ask(MESSAGES, [], Answer()))


@each_row(
    ("error", "reason"),
    [
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "[Errno 101] Network is unreachable"),
        (http.client.BadStatusLine("SSH-2.0"), "SSH-2.0"),
        # Says nothing.
        (http.client.NotConnected(), "NotConnected"),
    ],
)
def test_why_there_is_no_connection(monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str) -> None:
    def connect(connection: http.client.HTTPConnection) -> None:
        raise error

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    with pytest.raises(ChatError) as caught:
        list(ChatClient("http://127.0.0.1").ask(MESSAGES, [], Answer()))
    assert caught.value.message == f"http://127.0.0.1: {reason}"


def test_a_server_that_speaks_no_tls(server: Told) -> None:
    with pytest.raises(ChatError, match=r"^https://127\.0\.0\.1:\d+: no secure connection: [A-Z_]+$"):
        list(ChatClient(url(server).replace("http", "https")).ask(MESSAGES, [], Answer()))


def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ChatError) as caught:
            list(ChatClient(address, model="mine").ask(MESSAGES, [], Answer()))
    assert caught.value.message == f"{address}: it does not answer"


@each_row("text", ["127.0.0.1:8080", "ftp://host", "http://", "http://[::1", "http://host:99999"])
def test_no_url(text: str) -> None:
    with pytest.raises(OptionError, match="expected a URL"):
        ChatClient(text)
