"""DJL's async mode without DJL: what requests have to say after a step goes to Java in one message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lmi.handler.djl.modes import async_mode as courier
from lmi.handler.djl.modes.async_mode import AsyncBatcher

from ....kit.api.errors import UnavailableError
from ....kit.api.handler import Exchange, Frame, frame_of_exchange, started_service
from ....kit.api.types import Delta, Failed, Finish, Generation, Request, Sink, Started, Token
from ....kit.djl.outputs import Told, outputs_of
from ....kit.user_code.engine import ScriptedEngine

pytestmark = pytest.mark.anyio

BODY = b'{"inputs": "Hi", "stream": true}'


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def at_any_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "MIN_AGE_S", 0.0)


class Java:
    """djl_python's sender: takes messages from generators; each is sent when the test says so, or at once."""

    def __init__(self, **options: str) -> None:
        self.engine = ScriptedEngine()
        self.service = started_service(self.engine, **options)
        self.courier = AsyncBatcher(self.service)
        self.at_once = True
        self.messages: list[list[Told]] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def ask(self, whose: str, body: bytes = BODY) -> None:
        async def take(messages: AsyncIterator[bytes]) -> None:
            async for message in messages:
                self.messages.append(outputs_of(message))
                if self.at_once:
                    self.courier.sent()

        self.tasks[whose] = asyncio.ensure_future(take(self.courier.messages(Request(body, request_id=whose), whose)))

    def step(self, events: dict[int, Any]) -> None:
        """One step of the engine: all that it brings, then one notification."""
        listeners, self.engine._listeners = self.engine._listeners, []
        for ticket, event in events.items():
            self.engine.say(ticket, event)
        self.engine._listeners = listeners
        for listener in listeners:
            listener()

    def data(self, whose: str) -> str:
        return "".join(told.frame["data"] for message in self.messages for told in message if told.whose == whose)


async def settled() -> None:
    """Until nothing more happens on the loop by itself."""
    for _ in range(50):
        await asyncio.sleep(0)


def token(text: str, *, last: bool = False) -> Delta:
    return Delta(0, text, (Token(7, text, -0.5),), Finish("length", None, 1, -0.5) if last else None)


async def started(count: int, **options: str) -> Java:
    java = Java(**options)
    for index in range(count):
        java.ask(f"request {index}")
    await settled()
    java.step({index: Started(3) for index in range(count)})
    await settled()
    return java


async def test_a_step_is_one_message_with_each_requests_frame() -> None:
    java = await started(8)
    java.messages.clear()
    java.step({index: token(f"word {index}") for index in range(8)})
    await settled()
    (message,) = java.messages
    assert [told.whose for told in message] == [f"request {index}" for index in range(8)]
    for index, told in enumerate(message):
        assert f'"text":"word {index}"' in told.frame["data"]
        assert told.frame["last"] == "false"
        assert told.headers == {"Content-Type": "application/jsonlines"}
    java.step({index: token("!") for index in range(8)})
    await settled()
    assert all(told.headers == {} for told in java.messages[-1]), "headers belong to the first frame"


async def test_whoever_carries_may_end_and_the_others_go_on() -> None:
    java = await started(4)
    for ended in range(4):
        java.step({index: token("x", last=index == ended) for index in range(ended, 4)})
        await settled()
        done = [task.done() for task in java.tasks.values()]
        assert done == [index <= ended for index in range(4)]
    for index in range(4):
        frames = [told.frame for message in java.messages for told in message if told.whose == f"request {index}"]
        # The end of a stream is a frame of its own, unless it is also its beginning.
        assert [frame["last"] for frame in frames] == ["false"] * (index + 1 if index else 0) + ["true"]
        assert java.data(f"request {index}").count('"text":"x"') == index + 1


async def test_tasks_of_its_loop_are_counted() -> None:
    """Those of requests that have ended are no more."""
    before = len(asyncio.all_tasks())
    java = await started(3)
    assert java.service.metrics.tasks == before + 3
    java.step({index: token("x", last=True) for index in range(2)})
    await settled()
    assert java.service.metrics.tasks == before + 1


async def test_a_generator_that_is_closed_hands_over() -> None:
    java = await started(3)
    java.at_once = False
    java.step({0: token("x"), 1: token("x"), 2: token("x")})
    await settled()
    assert len(java.messages[-1]) == 3
    java.step({1: token("y"), 2: token("y")})
    await settled()
    assert java.data("request 1").count("text") == 1, "the message before is not sent yet"
    java.tasks["request 0"].cancel()
    java.at_once = True
    await settled()
    assert java.engine.aborted == [0]
    assert [told.whose for told in java.messages[-1]] == ["request 1", "request 2"]
    java.step({1: token("z", last=True), 2: token("z", last=True)})
    await settled()
    assert java.tasks["request 1"].done()
    assert java.tasks["request 2"].done()


@pytest.mark.parametrize("closed", [0, 1], ids=["the carrier", "another"])
async def test_a_generator_that_is_closed_with_news_takes_no_turn(closed: int) -> None:
    java = await started(3)
    java.at_once = False
    java.step({0: token("x"), 1: token("x"), 2: token("x")})
    await settled()
    java.step({0: token("y"), 1: token("y"), 2: token("y")})
    await settled()
    java.tasks[f"request {closed}"].cancel()
    await settled()
    java.at_once = True
    java.courier.sent()
    await settled()
    others = [index for index in range(3) if index != closed]
    java.step({index: token("z", last=True) for index in others})
    await settled()
    for index in others:
        assert [java.data(f"request {index}").count(f'"text":"{text}"') for text in "xyz"] == [1, 1, 1]
        assert java.tasks[f"request {index}"].done()


@pytest.mark.parametrize("merge", ["false", "true"])
async def test_what_comes_before_the_last_message_is_sent_gathers(merge: str) -> None:
    java = await started(2, merge_records=merge)
    java.at_once = False
    java.step({0: token("a"), 1: token("a")})
    await settled()
    before = len(java.messages)
    for text in ("b", "c", "d"):
        java.step({0: token(text), 1: token(text)})
        await settled()
    assert len(java.messages) == before
    java.at_once = True
    java.courier.sent()
    await settled()
    frames = [told.frame["data"] for told in java.messages[-1] if told.whose == "request 1"]
    assert len(frames) == (1 if merge == "true" else 3)
    assert [line.split('"text":"')[1][0] for line in "".join(frames).splitlines()] == ["b", "c", "d"]


async def test_errors_are_frames() -> None:
    java = await started(1)
    java.ask("not JSON", b"{")
    await settled()
    (told,) = java.messages[-1]
    assert (told.whose, told.frame["code"], told.frame["last"]) == ("not JSON", "424", "true")
    java.step({0: Failed.of(UnavailableError("the engine has ended"))})
    await settled()
    (told,) = java.messages[-1]
    assert (told.frame["code"], told.frame["error"]) == ("424", "the engine has ended")
    assert all(task.done() for task in java.tasks.values())


async def test_an_answer_in_one_frame_is_not_sent_before_java_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream's records are, and nobody waits for another's answer."""
    java = await started(1)
    monkeypatch.setattr(courier, "MIN_AGE_S", 0.1)
    begun = time.monotonic()
    java.ask("refused", b"{")
    java.ask("whole", b'{"inputs": "Hi"}')
    java.ask("stream")
    await settled()
    java.step({1: Started(3), 2: Started(3), 0: token("x")})
    java.step({1: token("all of it", last=True), 2: token("x"), 0: token("y")})
    await settled()
    assert java.data("request 0").count("text") == 2
    assert java.data("stream").count("text") == 1
    assert [java.data(whose) for whose in ("refused", "whole")] == ["", ""]
    while not all(java.tasks[whose].done() for whose in ("refused", "whole")):
        assert time.monotonic() < begun + 5
        await asyncio.sleep(0.01)
    assert time.monotonic() >= begun + 0.1
    (told,) = [told for message in java.messages for told in message if told.whose == "refused"]
    assert told.frame["code"] == "424"
    assert java.data("whole") == '{"generated_text":"all of it"}'


async def test_one_that_goes_meanwhile_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    java = await started(1)
    monkeypatch.setattr(courier, "MIN_AGE_S", 0.05)
    java.ask("whole", b'{"inputs": "Hi"}')
    await settled()
    java.step({1: Started(3)})
    java.step({1: token("all of it", last=True)})
    await settled()
    java.tasks["whole"].cancel()
    await asyncio.sleep(0.1)
    assert java.data("whole") == ""
    java.step({0: token("x")})
    await settled()
    assert java.data("request 0").count("text") == 1


async def test_an_engine_that_is_not_there_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    java = Java()

    def refuse(generation: Generation, sink: Sink) -> int:
        raise UnavailableError("the engine is being rebuilt")

    monkeypatch.setattr(java.engine, "submit", refuse)
    for index in range(3):
        java.ask(f"request {index}")
    await settled()
    frames = [told.frame for message in java.messages for told in message]
    assert [(frame["error"], frame["last"]) for frame in frames] == [("the engine is being rebuilt", "true")] * 3
    assert all(task.done() for task in java.tasks.values())


async def test_a_failure_in_sending_one_answer_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    java = await started(2)

    def fragile(exchange: Exchange, *, first: bool, merge: bool) -> Frame:
        if exchange.request_id == "request 0":
            raise ZeroDivisionError
        return frame_of_exchange(exchange, first=first, merge=merge)

    monkeypatch.setattr(courier, "frame_of_exchange", fragile)
    java.step({0: token("x"), 1: token("x")})
    await settled()
    first, second = java.messages[-1]
    assert (first.frame["code"], first.frame["last"]) == ("424", "true")
    assert first.frame["error"] == "the response could not be sent: ZeroDivisionError"
    assert '"text":"x"' in second.frame["data"]
    assert java.engine.aborted == [0]
    assert [task.done() for task in java.tasks.values()] == [True, False]
