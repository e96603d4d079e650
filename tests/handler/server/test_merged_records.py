"""`option.merge_records` on the local server: which records share a body message, and that none is lost or held back.

(tests/handler/djl/test_rolling_batch.py and tests/handler/djl/test_async_mode.py have it on DJL's hosts.)
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import sys
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi.handler.server.app import application
from lmi.handler.server.wakeups import AsyncService

from ...kit.api.handler import Exchange, Service, started_service
from ...kit.api.types import Delta, Event, Finish, Request, Response, Started, Token
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
    assert not isinstance(opened, Response)
    for step in steps:
        engine.say(0, *step)
    return list(opened.records)


class Connection:
    """One request to the local server's application."""

    def __init__(self, app: Any) -> None:
        self.bodies: list[bytes] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self._asked = False
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/invocations",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._asked:
            await asyncio.Event().wait()
        self._asked = True
        return {"type": "http.request", "body": STREAM, "more_body": False}

    async def _send(self, message: dict[str, Any]) -> None:
        # As uvicorn: it takes the message, and then waits until the client has read enough.
        if body := message.get("body"):
            self.bodies.append(body)
        await self.reads.wait()


async def settled() -> None:
    """Until nothing more happens on the loop by itself."""
    for _ in range(20):
        await asyncio.sleep(0)


async def connected(engine: ScriptedEngine, service: Service, then: Callable[[Connection], Awaitable[None]]) -> None:
    app = application(service)
    async with app.router.lifespan_context(app):
        connection = Connection(app)
        await settled()
        assert len(engine.generations) == 1
        await then(connection)


@given(acts=ACTS, output=st.sampled_from(["jsonlines", "sse"]), merge=st.sampled_from(["true", "false"]))
def test_whatever_comes_together_the_bytes_are_the_same(acts: list[Act], output: str, merge: str) -> None:
    engine, service = service_of(output, merge)
    steps: list[list[Event]] = [[Started(3)]]
    said = 0

    async def run(connection: Connection) -> None:
        nonlocal said
        engine.say(0, *steps[0])
        for act in acts:
            if act == "turn":
                await settled()
                if connection.reads.is_set():
                    # Whatever is ready is sent: nothing is held back for what may come.
                    assert b"".join(connection.bodies) == b"".join(alone(steps, output))
            elif act == "full":
                connection.reads.clear()
            elif act == "read":
                connection.reads.set()
            else:
                steps.append(tokens(act[1], after=said))
                said += act[1]
                engine.say(0, *steps[-1])
        steps.append(tokens(2, after=said, last=True))
        engine.say(0, *steps[-1])
        connection.reads.set()
        await asyncio.wait_for(connection.task, 30)
        records = alone(steps, output)
        assert len(records) == said + 2
        assert b"".join(connection.bodies) == b"".join(records)
        if merge == "false":
            assert connection.bodies == records

    asyncio.run(connected(engine, service, run))


@pytest.mark.parametrize("merge", ["true", "false"])
def test_records_that_are_ready_together_share_a_body_message(merge: str) -> None:
    engine, service = service_of("jsonlines", merge)

    def sizes(connection: Connection) -> list[int]:
        """How many lines each body message has."""
        return [len([json.loads(line) for line in body.splitlines()]) for body in connection.bodies]

    async def run(connection: Connection) -> None:
        # A step that brings several.
        engine.say(0, Started(3), *tokens(3))
        await settled()
        # A client that does not keep up with three steps.
        connection.reads.clear()
        for number in range(3, 7):
            engine.say(0, *tokens(1, after=number))
            await settled()
        connection.reads.set()
        await settled()
        # One that does.
        for number in range(7, 9):
            engine.say(0, *tokens(1, after=number, last=number == 8))
            await settled()
        await asyncio.wait_for(connection.task, 30)
        assert sizes(connection) == ([3, 1, 3, 1, 1] if merge == "true" else [1] * 9)

    asyncio.run(connected(engine, service, run))


@pytest.mark.parametrize("merge", [True, False])
def test_nothing_is_lost_that_comes_while_records_are_taken(merge: bool) -> None:
    """As if the engine's thread put a record there between any two instructions of the event loop's."""
    engine, service = service_of("jsonlines", "false")
    traced = {inspect.getfile(AsyncService), inspect.getfile(Exchange)}
    count = 500

    async def run() -> bytes:
        stream = AsyncService(service).open(Request(STREAM))
        assert not isinstance(stream, Response)
        engine.say(0, Started(3))
        left = iter(range(count))

        def meanwhile(frame: FrameType, event: str, _: object) -> Any:
            frame.f_trace_opcodes = frame.f_code.co_filename in traced
            if event == "opcode" and (number := next(left, None)) is not None:
                engine.say(0, *tokens(1, after=number, last=number == count - 1))
            return meanwhile

        sent: list[bytes] = []
        before = sys.gettrace()
        sys.settrace(meanwhile)
        try:
            sent += [record async for record in stream.records(merge=merge)]
        finally:
            sys.settrace(before)
        return b"".join(sent)

    assert [int(number) for number in re.findall(rb'"id":([0-9]+)', asyncio.run(run()))] == [*range(count)]
