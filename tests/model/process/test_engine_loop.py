"""The loop of the engine's process without an engine: in which order it hears of things, and what the host hears."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from lmi.model.process.engine_loop import EngineLoop

from ...kit.api.engine import Abort, Add, Channel, FromEngine, Release, Stats, Step, ToEngine
from ...kit.api.errors import ParameterError
from ...kit.api.options import ImageRules
from ...kit.api.types import EngineInfo, EngineStats, Event, Failed, Generation, Image, Rendered

pytestmark = pytest.mark.anyio


class Noting:
    """An AsyncBackend that notes what it is told, and brings what is put into `brought`."""

    info = EngineInfo(engine="noting", version="1", context=1)

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.busy = False
        self.refuses = False
        self.brought: asyncio.Queue[list[tuple[int, Event]]] = asyncio.Queue()

    async def begin(self) -> None: ...

    def prepare(self, number: int, generation: Generation, images: Sequence[Image] = ()) -> Any:
        del generation, images
        return number

    def tokens(self, prepared: Any) -> int:
        return int(prepared)

    def prompt_text(self, prepared: Any) -> str:
        return f"prompt {prepared}"

    def add(self, number: int, prepared: Any) -> None:
        assert number == prepared
        if self.refuses:
            raise ParameterError("not this one")
        self.told.append(("add", prepared))

    def abort(self, numbers: Sequence[int]) -> None:
        self.told.append(("abort", *numbers))

    async def receive(self) -> Sequence[tuple[int, Event]]:
        return await self.brought.get()

    def stats(self) -> EngineStats:
        return EngineStats(running=1)

    def close(self) -> None: ...

    @property
    def added(self) -> list[object]:
        """What has been started since the last look."""
        added = [told[1] for told in self.told if told[0] == "add"]
        self.told.clear()
        return added


class Ends:
    """The two ends of a channel."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.engine = Channel[ToEngine](ours, ToEngine)
        self.host = Channel[Any](theirs, FromEngine)

    def told(self) -> list[Any]:
        """All that the host has been told, when the engine's end is closed."""
        self.engine.close()
        return [*iter(self.host.receive, None)]


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    monkeypatch.setattr("lmi.model.process.engine_loop.end_with_host", lambda: None)
    ends = Ends()
    yield ends
    ends.engine.close()
    ends.host.close()
    for thread in threading.enumerate():
        # What it does last is not to happen without the stand-in.
        if thread.name == "lmi-intake":
            thread.join(10)


async def until(condition: Callable[[], object]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about")


async def test_what_fails_before_it_starts_is_logged_with_its_request(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    loop = EngineLoop(ends.engine, Noting(), ImageRules())
    loop._request_ids.add(7, "r-7")
    loop._refuse(7, ValueError("broken"))
    loop._refuse(8, ValueError("broken"))
    loop._refuse(7, ParameterError("not for the log"))
    await asyncio.sleep(0)
    assert caplog.messages == [
        "request r-7: generation 7 failed before it started",
        "request -: generation 8 failed before it started",
    ]


async def test_the_host_is_told_how_busy_the_engine_is_and_when_it_is_idle(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each beat while it makes steps, and once when there is no more to do; not while a busy one brings nothing."""
    monkeypatch.setattr("lmi.model.process.engine_loop.BEAT_S", 0.05)
    backend = Noting()
    running = asyncio.ensure_future(EngineLoop(ends.engine, backend, ImageRules()).run())
    backend.busy = True
    backend.brought.put_nowait([])
    await asyncio.sleep(0.5)
    backend.busy = False
    await asyncio.sleep(0.5)
    running.cancel()
    assert ends.told() == [Stats(EngineStats(running=1)), Stats(EngineStats())]


async def test_an_engine_that_fails_ends_the_loop(ends: Ends) -> None:
    class Failing(Noting):
        async def receive(self) -> Sequence[tuple[int, Event]]:
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        await asyncio.wait_for(EngineLoop(ends.engine, Failing(), ImageRules()).run(), 10)


async def test_what_is_held_back_starts_when_it_is_released_and_not_after_an_abort(ends: Ends) -> None:
    backend = Noting()
    running = asyncio.ensure_future(EngineLoop(ends.engine, backend, ImageRules()).run())
    host: Channel[Any] = ends.host
    for number in (1, 2, 3, 4):
        host.send(Add(number, Generation(request_id="r", prompt="a", held=number != 3)))
    rendered: dict[int, object] = {}
    while len(rendered) < 3:
        message = await asyncio.to_thread(host.receive)
        assert isinstance(message, Step)
        rendered |= dict(message.events)
    assert rendered == {number: Rendered(f"prompt {number}") for number in (1, 2, 4)}
    host.send(Abort((2,)))
    # The others: one that was aborted, and one that there never was.
    host.send(Release((4, 2, 9)))
    await until(lambda: ("add", 4) in backend.told)
    assert backend.told == [("add", 3), ("abort", 2), ("add", 4)]
    ends.host.close()
    await asyncio.wait_for(running, 10)


async def test_an_abort_never_comes_before_what_it_ends(ends: Ends) -> None:
    """A generation that is ended while it is being prepared is never started: it would run on for nobody."""
    backend = Noting()
    running = asyncio.ensure_future(EngineLoop(ends.engine, backend, ImageRules()).run())
    numbers = range(1, 200)
    for number in numbers:
        ends.host.post(Add(number, Generation(request_id="r", prompt="a")))
        ends.host.post(Abort((number,)))
    await until(lambda: ("abort", numbers[-1]) in backend.told)
    ends.host.close()
    await asyncio.wait_for(running, 10)
    for number in numbers:
        events = [event for event in backend.told if event[1] == number]
        assert events in ([("abort", number)], [("add", number), ("abort", number)])


async def test_tokens_in_flight_are_counted_from_start_to_end(ends: Ends) -> None:
    """A generation of so many tokens as its number says, with 100 in flight at most."""
    backend = Noting()
    loop = EngineLoop(ends.engine, backend, ImageRules(), 100)

    async def come_in(*numbers: int) -> list[object]:
        """Which of them are started."""
        for number in numbers:
            loop._ready(number, number)
        await asyncio.sleep(0)
        return backend.added

    assert await come_in(60, 41, 40, 1) == [60, 40]
    loop._call(loop._abort, (60, 41))
    assert await come_in(61, 59) == [59]
    backend.refuses = True
    assert await come_in(1) == []
    backend.refuses = False
    assert await come_in(1) == [1]
    told = [event for message in ends.told() for event in message.events]
    assert [number for number, _ in told] == [41, 1, 61, 1]
    kinds = [event.kind for _, event in told if isinstance(event, Failed)]
    assert kinds == ["OverloadedError"] * 3 + ["ParameterError"]
