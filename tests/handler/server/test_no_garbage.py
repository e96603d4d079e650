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

from ...kit.api.handler import AsyncBatcher, PlainBatch, RollingBatch, Service, started_service
from ...kit.api.types import Delta, Finish, Request, Started
from ...kit.hosts.local_server import Make
from ...kit.rows import each_row
from ...kit.user_code.engine import TalkingEngine
from ...kit.waiting import until

REQUESTS = 5
KEPT = ("Exchange", "Deferred", "Answer", "Stream", "StreamResponse", "_Sender")
"""What there is of each request."""


def body(**more: object) -> bytes:
    return json.dumps({"inputs": "Hi", **more}).encode()


def kept() -> list[str]:
    """The names of what there is of requests."""
    return [name for one in gc.get_objects() if (name := type(one).__name__) in KEPT]


@contextmanager
def no_search() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
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
    with closing(started_service(TalkingEngine("Hi"), tmp_path)) as service, no_search():
        for _ in range(REQUESTS):
            host(service, Request(body(**stream)))
        until(lambda: not kept())


@pytest.mark.parametrize(
    ("head", "long"),
    [("", 0), ("Expect: 100-continue\r\n", 0), ("", 1 << 19)],
    ids=["simplest form", "by ASGI", "large body"],
)
def test_on_the_local_server(running: Make, head: str, long: int) -> None:
    server = running()
    with server.connect() as client, no_search():
        for streamed in (True, False) * REQUESTS:
            content = body(stream=streamed, ignored=" " * long)
            start = f"POST /invocations HTTP/1.1\r\nHost: test\r\n{head}Content-Length: {len(content)}\r\n\r\n"
            number = len(server.engine.generations)
            client.sendall(start.encode() + content)
            until(lambda: len(server.engine.generations) > number)  # noqa: B023 - waited for at once
            server.engine.say(number, Started(1), Delta(0, "Hello"))
            server.engine.say(number, Delta(0, "!", finish=Finish("eos", generated_tokens=2)))
            read_answer(client, streamed=streamed)
        until(lambda: not kept())


@each_row("streamed", [True, False])
def test_of_a_client_that_has_gone(running: Make, streamed: bool) -> None:
    server = running()
    with no_search():
        for _ in range(REQUESTS):
            with server.connect() as client:
                server.engine.say(server.ask(client, json.loads(body(stream=streamed))), Started(1), Delta(0, "Hello"))
        until(lambda: not kept())


def read_answer(client: socket.socket, *, streamed: bool) -> None:
    data = b""
    while not data.endswith(b"0\r\n\r\n" if streamed else b"}"):
        data += client.recv(1 << 16)
    assert b"200 OK" in data
