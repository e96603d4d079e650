"""What a request had is freed when it has ended, on every host: not when Python searches for garbage, long after, by
which time hundreds of requests keep their memory, and of which each search holds all streams up."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ...kit.api.handler import AsyncBatcher, Exchange, PlainBatch, RollingBatch, Service, started_service
from ...kit.api.types import Delta, Finish, Request, Started
from ...kit.hosts.local_server import Make
from ...kit.rows import each_row
from ...kit.user_code.engine import TalkingEngine
from ...kit.waiting import until

REQUESTS = 5
LONG = 1 << 19
"""Bytes of a body that is read on a thread."""


def body(**more: object) -> bytes:
    return json.dumps({"inputs": "Hi", **more}).encode()


def kept() -> int:
    """Exchanges that there are."""
    return sum(isinstance(one, Exchange) for one in gc.get_objects())


@contextmanager
def no_search() -> Iterator[Callable[[], bool]]:
    """Gives what tells whether no more is kept than before."""
    gc.collect()
    gc.disable()
    before = kept()
    try:
        yield lambda: kept() <= before
    finally:
        gc.enable()


def rolling(service: Service, request: Request) -> None:
    batch = RollingBatch(service, 0.001)
    items: list[Request | None] = [request]
    while not batch.step(items)[0].last:
        items = [None]


def asynchronous(service: Service, request: Request) -> None:
    async def main() -> None:
        batcher = AsyncBatcher(service)
        for number in range(REQUESTS):
            async for _ in batcher.messages(request, str(number)):
                batcher.sent()

    asyncio.run(main())


def dynamic(service: Service, request: Request) -> None:
    (answer,) = PlainBatch(service).answers([request])
    assert answer.status == 200


@each_row("streamed", [True, False])
@each_row("host", [rolling, asynchronous, dynamic])
def test_behind_djl(tmp_path: Path, host: Callable[[Service, Request], None], streamed: bool) -> None:
    stream = {"stream": True} if streamed and host is not dynamic else {}
    with closing(started_service(TalkingEngine("Hi"), tmp_path)) as service, no_search() as freed:
        for _ in range(REQUESTS):
            host(service, Request(body(**stream)))
        until(freed)


@pytest.mark.parametrize(
    ("head", "long"),
    [("", 0), ("Expect: 100-continue\r\n", 0), ("", LONG)],
    ids=["simplest form", "by ASGI", "large body"],
)
def test_on_the_local_server(running: Make, head: str, long: int) -> None:
    server = running()
    with server.connect() as client, no_search() as freed:
        for streamed in (True, False) * REQUESTS:
            content = body(stream=streamed, ignored=" " * long)
            start = f"POST /invocations HTTP/1.1\r\nHost: test\r\n{head}Content-Length: {len(content)}\r\n\r\n"
            number = len(server.engine.generations)
            client.sendall(start.encode() + content)
            until(lambda: len(server.engine.generations) > number)  # noqa: B023 - waited for at once
            server.engine.say(number, Started(1), Delta(0, "Hello"))
            server.engine.say(number, Delta(0, "!", finish=Finish("eos", generated_tokens=2)))
            read_answer(client, streamed=streamed)
        until(freed)


@each_row("head", ["", "Expect: 100-continue\r\n"])
@each_row("content", [b"no JSON", body(parameters={"temperature": -1}), body(ignored=" " * LONG)[:-1]])
def test_of_a_request_that_is_refused(running: Make, head: str, content: bytes) -> None:
    server = running()
    with server.connect() as client, no_search() as freed:
        for _ in range(REQUESTS):
            start = f"POST /invocations HTTP/1.1\r\nHost: test\r\n{head}Content-Length: {len(content)}\r\n\r\n"
            client.sendall(start.encode() + content)
            data = b""
            while b"HTTP/1.1 4" not in data or not data.endswith(b"}"):
                part = client.recv(1 << 16)
                assert part, data
                data += part
        until(freed)


@each_row("streamed", [True, False])
@each_row("long", [0, LONG])
def test_of_a_client_that_has_gone(running: Make, streamed: bool, long: int) -> None:
    server = running()
    with no_search() as freed:
        for _ in range(REQUESTS):
            with server.connect() as client:
                asked = {"inputs": "Hi", "stream": streamed, "ignored": " " * long}
                server.engine.say(server.ask(client, asked), Started(1), Delta(0, "Hello"))
        until(freed)


def read_answer(client: socket.socket, *, streamed: bool) -> None:
    data = b""
    while not data.endswith(b"0\r\n\r\n" if streamed else b"}"):
        part = client.recv(1 << 16)
        assert part, data
        data += part
    assert b"200 OK" in data
