"""Requests of the simplest form have the same answers as by ASGI, where goes what is not as simple. Bare sockets."""

from __future__ import annotations

import json
import re
import socket
import time
from typing import Any

import h11
import pytest

from lmi.handler.server.connections.direct import LONGEST, head_of

from ....kit.api.errors import GenerationError
from ....kit.api.handler import connection
from ....kit.api.types import Delta, Failed, Finish, Started, Token
from ....kit.hosts.local_server import Make, Running, answer
from ....kit.rows import each_row
from ....kit.waiting import until

PATHS = {b"/a": "/a"}
SIMPLE = {"Host": "test", "Content-Length": "2"}


def head(line: str = "POST /a HTTP/1.1", **headers: str) -> bytes:
    given = {**SIMPLE, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return "\r\n".join((line, *(f"{name}: {value}" for name, value in given.items() if value), "", "{}")).encode(
        "latin-1"
    )


TAKEN: dict[str, bytes] = {
    "the simplest": head(),
    "kept alive": head(Connection="Keep-Alive"),
    "blanks around a value": head(Accept=" \t*/* \t"),
    "obsolete text": head(X_Name="\xe9"),
    "no value": head().replace(b"Host: test", b"Host:"),
    "more behind it": head() + b"POST",
    "the body is on its way": head()[:-1],
}
LEFT: dict[str, bytes] = {
    "nothing": b"",
    "an unfinished head": head()[:-6],
    "another method": head("PUT /a HTTP/1.1"),
    "another path": head("POST /b HTTP/1.1"),
    "a query": head("POST /a?b=1 HTTP/1.1"),
    "an absolute target": head("POST http://test/a HTTP/1.1"),
    "an encoded path": head("POST /%61 HTTP/1.1"),
    "HTTP/1.0": head("POST /a HTTP/1.0"),
    "two blanks": head("POST  /a HTTP/1.1"),
    "no carriage return": head().replace(b"\r\n", b"\n"),
    "no host": head().replace(b"Host: test\r\n", b""),
    "a folded line": head(X_Name="a\r\n b"),
    "a blank before the colon": head().replace(b"Host:", b"Host :"),
    "a name twice": head(X_A="1", x_a="2"),
    "two lengths": head(content_length="2"),
    "a control character": head(X_Name="a\x00b"),
    "no length": head().replace(b"Content-Length: 2\r\n", b""),
    "a length with a sign": head().replace(b": 2", b": +2"),
    "a long length": head().replace(b": 2", b": " + b"0" * 20 + b"2"),
    "a long body": head().replace(b": 2", b": %d" % (LONGEST + 1)),
    "a long head": head(X_Name="a" * LONGEST),
    "chunks": head(Transfer_Encoding="chunked"),
    "an interim response": head(Expect="100-continue"),
    "an upgrade": head(Upgrade="h2c"),
    "the last request": head(Connection="close"),
    "another page": head(Origin="http://test"),
}


@each_row(("data", "taken"), [(data, True) for data in TAKEN.values()] + [(data, False) for data in LEFT.values()])
def test_what_is_taken_is_as_simple(data: bytes, taken: bool) -> None:
    found = head_of(data, PATHS)
    assert (found is not None) == taken
    if found is None:
        return
    # As h11 reads it.
    server = h11.Connection(h11.SERVER)
    server.receive_data(data)
    event: Any = server.next_event()
    assert {name.decode(): value.decode("latin-1") for name, value in event.headers} == found.headers
    assert found.path == event.target.decode()
    assert data[found.begin : found.begin + 2] == b"{}"[: len(data) - found.begin]
    assert found.end == found.begin + 2


CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", CHAT),
    "chat stream": ("/v1/chat/completions", {**CHAT, "stream": True}),
    "text": ("/v1/completions", {"prompt": "Hi"}),
    "messages stream": ("/v1/messages", {**CHAT, "model": "lmi", "max_tokens": 9, "stream": True}),
    "lmi": ("/invocations", {"inputs": "Hi"}),
    "lmi stream": ("/invocations", {"inputs": "Hi", "stream": True}),
    "tgi stream": ("/generate_stream", {"inputs": "Hi"}),
    "refused": ("/v1/chat/completions", {**CHAT, "temperature": "hot"}),
    "a refused stream": ("/v1/chat/completions", {**CHAT, "temperature": "hot", "stream": True}),
    "no dialect's": ("/invocations", {"question": "Hi"}),
}
LAST = Delta(0, "lo", (Token(2, "lo", -0.5),), Finish("eos", generated_tokens=2))
SAID: dict[str, list[Any]] = {
    "two tokens": [Started(1), Delta(0, "Hel", (Token(1, "Hel", -0.5),)), LAST],
    "a failure at once": [Failed.of(GenerationError("it broke"))],
    "a failure later": [Started(1), Delta(0, "Hel", (Token(1, "Hel", -0.5),)), Failed.of(GenerationError("it broke"))],
}
VARIES = ("date", "x-request-id")


def told(server: Running, sock: socket.socket, path: str, body: Any, said: list[Any], *headers: str) -> Any:
    """Status, headers and body of an answer, without what differs between two of the same."""
    content = json.dumps(body)
    lines = (f"POST {path} HTTP/1.1", "Host: test", "X-Request-Id: r", f"Content-Length: {len(content)}", *headers)
    before = len(server.engine.generations)
    sock.sendall("\r\n".join((*lines, "", content)).encode())
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="POST", target="/", headers=[("Host", "test")]))
    client.send(h11.EndOfMessage())
    if not ({"question"} & body.keys() or body.get("temperature")):
        until(lambda: len(server.engine.generations) > before)
        server.engine.say(before, *said)
    status, found, data = 0, {}, b""
    while not isinstance(event := client.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            client.receive_data(sock.recv(1 << 16))
        elif isinstance(event, h11.Response):
            status, found = event.status_code, {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            data += bytes(event.data)
    assert found["x-request-id"] == "r"
    return status, {name: value for name, value in found.items() if name not in VARIES}, _lasting(data.decode())


def _lasting(text: str) -> str:
    """Without ids and times."""
    return re.sub(r'"(id|created|created_at)": ?("[^"]*"|\d+)|(chatcmpl|cmpl|msg)[-_]\w+', "", text)


@pytest.mark.parametrize("said", SAID)
def test_answers_are_those_of_the_other_way(running: Make, said: str) -> None:
    server = running()
    with server.connect() as sock:
        for kind, (path, body) in ASKED.items():
            here = told(server, sock, path, body, SAID[said])
            there = told(server, sock, path, body, SAID[said], "TE: trailers")
            assert here == there, kind
    assert server.service.metrics.in_flight == 0


@pytest.mark.parametrize("kind", ["chat", "chat stream", "lmi stream", "messages stream", "a refused stream"])
def test_what_is_ready_at_once_is_written_at_once(running: Make, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Head, records and the end of the body: each write of its own takes the kernel as long as a token takes us."""
    written: list[bytes] = []
    write = connection.Connection.write

    def counted(to: connection.Connection, data: bytes) -> None:
        written.append(data)
        write(to, data)

    monkeypatch.setattr(connection.Connection, "write", counted)
    server = running()
    path, body = ASKED[kind]
    with server.connect() as sock:
        told(server, sock, path, body, SAID["two tokens"])
    (whole,) = written
    assert whole.startswith(b"HTTP/1.1 ")


def test_nothing_of_asgi_runs(running: Make) -> None:
    """Of a request that is taken; one that is not, is ASGI's."""
    seen: list[str] = []

    def watch(app: Any) -> None:
        inner = app.build_middleware_stack()

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                seen.append(scope["path"])
            await inner(scope, receive, send)

        app.middleware_stack = watched

    server = running(prepare=watch)
    with server.connect() as sock:
        told(server, sock, "/v1/completions", {"prompt": "Hi"}, SAID["two tokens"])
        assert seen == []
        told(server, sock, "/v1/completions", {"prompt": "Hi"}, SAID["two tokens"], "TE: trailers")
        assert seen == ["/v1/completions"]
        told(server, sock, "/v1/completions", {"prompt": "Hi"}, SAID["two tokens"])
        assert seen == ["/v1/completions"]


BODY = json.dumps({"inputs": "Hi"}).encode()
REQUEST = b"POST /invocations HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


def finish(server: Running, number: int) -> None:
    until(lambda: len(server.engine.generations) > number)
    server.engine.say(number, *SAID["two tokens"])


@pytest.mark.parametrize("pause", [0.05, 1.3])
def test_a_body_may_come_later(running: Make, pause: float) -> None:
    """In pieces, within the time that it is waited for and beyond it."""
    server = running()
    with server.connect() as sock:
        for number in range(2):
            for piece in (REQUEST[:-8], REQUEST[-8:-3], REQUEST[-3:]):
                sock.sendall(piece)
                time.sleep(pause / 2)
            finish(server, number)
            assert answer(sock)[0] == 200


def test_a_body_in_many_pieces(running: Make) -> None:
    server = running()
    with server.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for index in range(len(REQUEST)):
            sock.sendall(REQUEST[index : index + 1])
            time.sleep(0.001)
        finish(server, 0)
        assert answer(sock)[0] == 200


def test_requests_that_come_together_are_answered_in_turn(running: Make) -> None:
    server = running()
    with server.connect() as sock:
        sock.sendall(REQUEST * 2 + REQUEST[:30])
        for number in range(2):
            finish(server, number)
            assert answer(sock)[0] == 200
            assert len(server.engine.generations) <= number + 2
        sock.sendall(REQUEST[30:])
        finish(server, 2)
        assert answer(sock)[0] == 200


def test_a_client_that_leaves_ends_its_generation(running: Make) -> None:
    server = running()
    sock = server.connect()
    number = server.ask(sock, {"inputs": "Hi", "stream": True})
    server.engine.say(number, Started(1), Delta(0, "Hel", (Token(1, "Hel", -0.5),)))
    assert sock.recv(1 << 16)
    sock.close()
    until(lambda: server.engine.running == 0)
    until(lambda: server.connections == 0)
    assert server.service.metrics.in_flight == 0


def test_a_held_request_whose_client_leaves_is_nothing(running: Make) -> None:
    server = running()
    with server.connect() as sock:
        sock.sendall(REQUEST[:-3])
        until(lambda: server.connections == 1)
    until(lambda: server.connections == 0)
    assert server.engine.generations == []


def test_a_request_is_counted_before_its_answer_is_there(running: Make) -> None:
    server = running()
    with server.connect() as sock:
        for number in range(3):
            sock.sendall(REQUEST)
            finish(server, number)
            answer(sock)
            scraped = told_metrics(server)
            assert f'http_requests_total{{handler="/invocations",method="POST",status="2xx"}} {number + 1}.0' in scraped


def told_metrics(server: Running) -> str:
    import httpx

    return httpx.get(f"http://127.0.0.1:{server.port}/metrics").text
