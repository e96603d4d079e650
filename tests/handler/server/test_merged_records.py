"""`option.merge_records` on the local server: which records share a chunk, and that none is lost or held back.

By uvicorn's connection as run.py has it, and by ASGI alone, which is how streams of HTTP/1.0 are sent.
(tests/handler/djl/modes/test_rolling_batch.py and test_async_mode.py have it on DJL's hosts.)
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from types import FrameType
from typing import Any, Literal

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from lmi.handler.server.access import Access
from lmi.handler.server.run import http_server
from lmi.handler.server.streams import AsyncService

from ...kit.api.handler import Exchange, Service, started_service
from ...kit.api.types import Delta, Event, Finish, Request, Started, Token
from ...kit.user_code.engine import ScriptedEngine

STREAM = b'{"inputs": "Hi", "stream": true, "parameters": {"details": true}}'
TEXTS = ["Once", " upon", "\n\n", "“naïve”", "", " 🦊", ' "a"']

Act = tuple[Literal["say"], int] | Literal["turn", "full", "read"]
"""A step of the engine that brings so many tokens; time for the event loop; the client's buffers are full; it reads."""

ACTS = st.lists(st.one_of(st.tuples(st.just("say"), st.integers(1, 4)), st.sampled_from(["turn", "full", "read"])))


def service_of(output: str, merge: str) -> tuple[ScriptedEngine, Service]:
    engine = ScriptedEngine()
    options = {"merge_records": merge, "output_formatter": output}
    service = started_service(engine, **options)
    return engine, service


def tokens(count: int, *, after: int = 0, last: bool = False) -> list[Event]:
    """A step's events: so many tokens, in deltas of their own."""
    events: list[Event] = []
    for number in range(after, after + count):
        text = TEXTS[number % len(TEXTS)]
        finish = Finish("length", None, number + 1, -1.0) if last and number == after + count - 1 else None
        events.append(Delta(0, text, (Token(number, text, -0.5),), finish))
    return events


def alone(steps: list[list[Event]], output: str) -> list[bytes]:
    """The records that these steps bring."""
    engine, service = service_of(output, "false")
    opened = service.open(Request(STREAM))
    for step in steps:
        engine.say(0, *step)
    return list(opened.records)


class ByAsgi:
    """One request to the local server's application."""

    def __init__(self, config: uvicorn.Config) -> None:
        self.bodies: list[bytes] = []
        self._reads = asyncio.Event()
        self._reads.set()
        self._asked = False
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/invocations",
            "raw_path": b"/invocations",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }
        app: Any = config.app
        self.ended = asyncio.ensure_future(app(scope, self._receive, self._send))

    @property
    def reading(self) -> bool:
        return self._reads.is_set()

    def read(self) -> None:
        self._reads.set()

    def stop_reading(self) -> None:
        self._reads.clear()

    async def _receive(self) -> dict[str, Any]:
        if self._asked:
            await asyncio.Event().wait()
        self._asked = True
        return {"type": "http.request", "body": STREAM, "more_body": False}

    async def _send(self, message: dict[str, Any]) -> None:
        # As uvicorn: it takes the message, and then waits until the client has read enough.
        if body := message.get("body"):
            self.bodies.append(body)
        await self._reads.wait()


class ByConnection(asyncio.Transport):
    """One request on a connection of its own, whose other side is this transport."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__()
        self.bodies: list[bytes] = []
        self.ended = asyncio.get_running_loop().create_future()
        self.reading = True
        state = {"app_state": {}, "server_state": ServerState()}
        self._protocol: Any = config.http_protocol_class(config=config, **state)  # type: ignore[call-arg]
        self._protocol.connection_made(self)
        head = f"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: {len(STREAM)}\r\n\r\n"
        self._protocol.data_received(head.encode() + STREAM)

    def read(self) -> None:
        self.reading = True
        self._protocol.resume_writing()

    def stop_reading(self) -> None:
        self.reading = False
        self._protocol.pause_writing()

    def write(self, data: Any) -> None:
        """Of whole chunks, the first of them with the head."""
        if data.startswith(b"HTTP/1.1 200 "):
            head, _, data = data.partition(b"\r\n\r\n")
            assert head.lower().count(b"\r\ntransfer-encoding: chunked") == 1
        while data:
            size, _, rest = data.partition(b"\r\n")
            body, data = rest[: int(size, 16)], rest[int(size, 16) :]
            assert data.startswith(b"\r\n")
            data = data[2:]
            if body:
                self.bodies.append(body)
            else:
                self.ended.set_result(None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("sockname", "peername") else default

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


Connection = ByAsgi | ByConnection
WAYS = pytest.mark.parametrize("way", [ByAsgi, ByConnection])


async def settled() -> None:
    """Until nothing more happens on the loop by itself."""
    for _ in range(20):
        await asyncio.sleep(0)


async def connected(
    way: type[Connection], engine: ScriptedEngine, service: Service, then: Callable[[Connection], Awaitable[None]]
) -> None:
    config = http_server(service, [], access=Access(), grace=1.0).config
    config.load()
    app: Any = config.app
    async with app.router.lifespan_context(app):
        connection = way(config)
        await settled()
        assert len(engine.generations) == 1
        await then(connection)


@WAYS
@settings(max_examples=25)
@given(acts=ACTS, output=st.sampled_from(["jsonlines", "sse"]), merge=st.sampled_from(["true", "false"]))
def test_whatever_comes_together_the_bytes_are_the_same(
    way: type[Connection], acts: list[Act], output: str, merge: str
) -> None:
    engine, service = service_of(output, merge)
    steps: list[list[Event]] = [[Started(3)]]
    said = 0

    async def run(connection: Connection) -> None:
        nonlocal said
        engine.say(0, *steps[0])
        for act in acts:
            if act == "turn":
                await settled()
                if connection.reading:
                    # Whatever is ready is sent: nothing is held back for what may come.
                    assert b"".join(connection.bodies) == b"".join(alone(steps, output))
            elif act == "full":
                connection.stop_reading()
            elif act == "read":
                connection.read()
            else:
                steps.append(tokens(act[1], after=said))
                said += act[1]
                engine.say(0, *steps[-1])
        steps.append(tokens(2, after=said, last=True))
        engine.say(0, *steps[-1])
        connection.read()
        await asyncio.wait_for(connection.ended, 30)
        records = alone(steps, output)
        assert len(records) == said + 2
        assert b"".join(connection.bodies) == b"".join(records)
        if merge == "false":
            assert connection.bodies == records

    asyncio.run(connected(way, engine, service, run))


@WAYS
@pytest.mark.parametrize("merge", ["true", "false"])
def test_records_that_are_ready_together_share_a_chunk(way: type[Connection], merge: str) -> None:
    engine, service = service_of("jsonlines", merge)

    def sizes(connection: Connection) -> list[int]:
        """How many lines each chunk has."""
        return [len([json.loads(line) for line in body.splitlines()]) for body in connection.bodies]

    async def run(connection: Connection) -> None:
        # A step that brings several.
        engine.say(0, Started(3), *tokens(3))
        await settled()
        # A client that does not keep up with three steps.
        connection.stop_reading()
        for number in range(3, 7):
            engine.say(0, *tokens(1, after=number))
            await settled()
        connection.read()
        await settled()
        # One that does.
        for number in range(7, 9):
            engine.say(0, *tokens(1, after=number, last=number == 8))
            await settled()
        await asyncio.wait_for(connection.ended, 30)
        # By ASGI one is taken before it is known that the client does not read.
        merged = [3, 1, 3, 1, 1] if way is ByAsgi else [3, 4, 1, 1]
        assert sizes(connection) == (merged if merge == "true" else [1] * 9)

    asyncio.run(connected(way, engine, service, run))


class Chunks:
    """A connection that takes everything at once."""

    full = False

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    async def drained(self) -> None: ...

    def write_chunks(self, records: Sequence[bytes]) -> None:
        self.sent += records


@WAYS
@pytest.mark.parametrize("merge", [True, False])
def test_nothing_is_lost_that_comes_while_records_are_taken(way: type[Connection], merge: bool) -> None:
    """As if the engine's thread put a record there between any two instructions of the event loop's."""
    engine, service = service_of("jsonlines", "false")
    traced = {inspect.getfile(AsyncService), inspect.getfile(Exchange)}
    count = 500

    async def run() -> bytes:
        stream = AsyncService(service).open(Request(STREAM))
        engine.say(0, Started(3))
        left = iter(range(count))

        def meanwhile(frame: FrameType, event: str, _: object) -> Any:
            frame.f_trace_opcodes = frame.f_code.co_filename in traced
            if event == "opcode" and (number := next(left, None)) is not None:
                engine.say(0, *tokens(1, after=number, last=number == count - 1))
            return meanwhile

        chunks: Any = Chunks()
        before = sys.gettrace()
        # Python 3.12 has such events only if a frame wants them by now.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(meanwhile)
        try:
            if way is ByConnection:
                await asyncio.wait_for(stream.write_to(chunks, merge=merge), 30)
            else:
                chunks.sent += [record async for record in stream.records(merge=merge)]
        finally:
            sys.settrace(before)
        return b"".join(chunks.sent)

    assert [int(number) for number in re.findall(rb'"id":([0-9]+)', asyncio.run(run()))] == [*range(count)]


def test_a_chunk_that_cannot_be_written_ends_its_own_request_alone() -> None:
    engine, service = service_of("jsonlines", "false")

    class Broken(Chunks):
        failed = False

        def write_chunks(self, records: Sequence[bytes]) -> None:
            if self.sent and not self.failed:
                self.failed = True
                raise OSError("broken")
            super().write_chunks(records)

    async def run() -> None:
        streams = AsyncService(service)
        both: list[Any] = [Broken(), Chunks()]
        opened = [streams.open(Request(STREAM)) for _ in both]
        sending = [asyncio.ensure_future(one.write_to(chunks)) for one, chunks in zip(opened, both, strict=True)]
        for number in (0, 1):
            engine.say(number, Started(3), *tokens(1))
            await settled()
        for number in (0, 1):
            engine.say(number, *tokens(2, after=1))
        await settled()
        engine.say(1, *tokens(1, after=3, last=True))
        with pytest.raises(OSError, match="broken"):
            await asyncio.wait_for(sending[0], 30)
        await asyncio.wait_for(sending[1], 30)
        assert engine.aborted == [0]
        assert [len(chunks.sent) for chunks in both] == [1, 4]

    asyncio.run(run())


def test_requests_that_come_together_do_not_hold_up_the_tokens_of_others() -> None:
    engine, service = service_of("jsonlines", "false")
    woken_after: list[int] = []

    class Waiter:
        exchange: Exchange

        def wake(self) -> None:
            if self.exchange.records:
                woken_after.append(len(engine.generations))

    async def run() -> None:
        streams = AsyncService(service)
        streams.start(Request(STREAM), Waiter())
        engine.ready += [(0, Started(3)), (0, tokens(1)[0])]
        for _ in range(40):
            streams.start(Request(STREAM), Waiter())

    asyncio.run(run())
    assert {*woken_after} == {16}
