"""The loop of the engine's process without an engine: in which order it hears of things, and what the host hears."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from lmi.model.process.engine_loop import EngineLoop

from ...kit.api.engine import (
    Abort,
    AdapterOutcome,
    Add,
    Channel,
    FromEngine,
    Release,
    RemoveAdapter,
    RequestPreparer,
    Scrape,
    Scraped,
    SetAdapter,
    Stats,
    Step,
    ToEngine,
)
from ...kit.api.errors import AdapterError, ErrorMessage, ParameterError
from ...kit.api.options import MediaRules
from ...kit.api.types import (
    Delta,
    EngineInfo,
    EngineStats,
    Event,
    Failed,
    Finish,
    Generation,
    MediaFile,
    Rendered,
    Started,
)
from ...kit.engines.loaders import Loader, adapter

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

    def prepare(self, number: int, generation: Generation, images: Sequence[MediaFile] = ()) -> Any:
        del generation, images
        return number

    def tokenize(self, generation: Generation, images: Sequence[MediaFile] = ()) -> Started:
        del images
        assert isinstance(generation.prompt, str)
        return Started(len(generation.prompt), context=8)

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


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host hears nothing of how busy the engine is."""
    monkeypatch.setattr("lmi.model.process.engine_loop.BEAT_S", 100.0)


@pytest.mark.usefixtures("quiet")
async def test_what_fails_before_it_starts_is_logged_with_its_request(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Noting):
        def prepare(self, number: int, generation: Generation, images: Sequence[MediaFile] = ()) -> Any:
            raise ValueError("broken") if number == 7 else ParameterError("not for the log")

    running = asyncio.ensure_future(EngineLoop(ends.engine, Failing(), MediaRules()).run())
    for number in (7, 8):
        ends.host.send(Add(number, Generation(request_id=f"r-{number}", prompt="a")))
        assert isinstance(await asyncio.to_thread(ends.host.receive), Step)
    assert caplog.messages == ["request r-7: generation 7 failed before it started"]
    ends.host.close()
    await asyncio.wait_for(running, 10)


async def test_the_host_is_told_how_busy_the_engine_is_and_when_it_is_idle(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each beat while it makes steps, and once when there is no more to do; not while a busy one brings nothing."""
    monkeypatch.setattr("lmi.model.process.engine_loop.BEAT_S", 0.05)
    backend = Noting()
    running = asyncio.ensure_future(EngineLoop(ends.engine, backend, MediaRules()).run())
    backend.busy = True
    backend.brought.put_nowait([])
    await asyncio.sleep(0.5)
    backend.busy = False
    await asyncio.sleep(0.5)
    running.cancel()
    assert ends.told() == [Stats(EngineStats(running=1)), Stats(EngineStats())]


class Measured(Noting):
    """One with metrics of its own."""

    def metrics(self, content_type: str) -> bytes:
        if content_type == "broken":
            raise ValueError(content_type)
        return f"as {content_type}".encode()


@pytest.mark.parametrize(
    ("backend", "content_type", "text"),
    [(Measured, "text/plain", b"as text/plain"), (Measured, "broken", b""), (Noting, "text/plain", b"")],
)
async def test_metrics_are_told_to_who_asks(ends: Ends, backend: type[Noting], content_type: str, text: bytes) -> None:
    running = asyncio.ensure_future(EngineLoop(ends.engine, backend(), MediaRules()).run())
    ends.host.send(Scrape(content_type))
    assert await asyncio.to_thread(ends.host.receive) == Scraped(content_type, text)
    ends.host.close()
    await asyncio.wait_for(running, 10)


async def test_an_engine_that_fails_ends_the_loop(ends: Ends) -> None:
    class Failing(Noting):
        async def receive(self) -> Sequence[tuple[int, Event]]:
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        await asyncio.wait_for(EngineLoop(ends.engine, Failing(), MediaRules()).run(), 10)


async def test_an_intake_that_fails_ends_the_loop(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the host sends would be read any more, though the engine goes on."""

    def failing(*_: object) -> None:
        raise MemoryError("no room for a request")

    monkeypatch.setattr(RequestPreparer, "take", failing)
    ends.host.send(Add(1, Generation(request_id="r", prompt="a")))
    with pytest.raises(MemoryError, match="no room for a request"):
        await asyncio.wait_for(EngineLoop(ends.engine, Noting(), MediaRules()).run(), 10)


async def test_what_is_held_back_starts_when_it_is_released_and_not_after_an_abort(ends: Ends) -> None:
    backend = Noting()
    running = asyncio.ensure_future(EngineLoop(ends.engine, backend, MediaRules()).run())
    host: Channel[Any] = ends.host
    for number in (1, 2, 3, 4):
        host.send(Add(number, Generation(request_id="r", prompt="a", held=number != 3)))
    rendered: dict[int, object] = {}
    while len(rendered) < 3:
        message = await asyncio.to_thread(host.receive)
        assert isinstance(message, Step)
        rendered |= dict(message.events)
    assert rendered == {number: Rendered(f"prompt {number}") for number in (1, 2, 4)}
    await until(lambda: backend.told == [("add", 3)])
    host.send(Abort((2,)))
    # The others: one that was aborted, and one that there never was.
    host.send(Release((4, 2, 9)))
    await until(lambda: ("add", 4) in backend.told)
    assert backend.told == [("add", 3), ("abort", 2), ("add", 4)]
    ends.host.close()
    await asyncio.wait_for(running, 10)


async def test_a_prompts_tokens_are_told_without_the_engine(ends: Ends) -> None:
    """Longer than the context, too; beside what the tokens in flight leave room for, and whatever its adapter is."""
    backend = Adapted()
    running = asyncio.ensure_future(EngineLoop(ends.engine, backend, MediaRules(), 1).run())
    ends.host.send(SetAdapter(B))
    assert await asyncio.to_thread(ends.host.receive) == AdapterOutcome(B.key)
    ends.host.send(Add(7, Generation(request_id="r", prompt="more than the context", tokenize=True, adapter=B.key)))
    told = await asyncio.to_thread(ends.host.receive)
    assert told == Step([(7, Started(21, context=8)), (7, Delta(0, "", finish=Finish("length")))])
    assert backend.told == []
    ends.host.send(RemoveAdapter(B.key))
    await until(lambda: backend.adapters.known == set())
    ends.host.close()
    await asyncio.wait_for(running, 10)


@pytest.mark.parametrize("stepped", [False, True], ids=["async", "stepped"])
async def test_a_backend_that_cannot_tell_tokens_says_so(ends: Ends, stepped: bool) -> None:
    backend: Any = Noting()
    backend.tokenize = None
    if stepped:
        backend.step = list
    running = asyncio.ensure_future(EngineLoop(ends.engine, backend, MediaRules()).run())
    ends.host.send(Add(7, Generation(request_id="r", prompt="a", tokenize=True)))
    message = await asyncio.to_thread(ends.host.receive)
    refused = Failed("UnsupportedError", "the engine noting does not tell how a prompt is tokenized")
    assert message == Step([(7, refused)])
    ends.host.close()
    await asyncio.wait_for(running, 10)


async def test_an_abort_never_comes_before_what_it_ends(ends: Ends) -> None:
    """A generation that is ended while it is being prepared is never started: it would run on for nobody."""
    backend = Noting()
    running = asyncio.ensure_future(EngineLoop(ends.engine, backend, MediaRules()).run())
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


@pytest.mark.usefixtures("quiet")
async def test_tokens_in_flight_are_counted_from_start_to_end(ends: Ends) -> None:
    """A generation of so many tokens as its number says, with 100 in flight at most."""
    backend = Noting()
    running = asyncio.ensure_future(EngineLoop(ends.engine, backend, MediaRules(), 100).run())

    async def comes_in(number: int) -> str:
        """Whether it is started, or what it fails with."""
        ends.host.send(Add(number, Generation(request_id="r", prompt="a")))
        told = asyncio.ensure_future(asyncio.to_thread(ends.host.receive))
        await until(lambda: told.done() or ("add", number) in backend.told)
        if told.done():
            message: Any = told.result()
            ((_, event),) = message.events
            return str(event.kind)
        ends.engine.post(Scraped("", b""))
        await told
        return "started"

    assert [await comes_in(number) for number in (60, 41, 40, 1)] == [
        "started", "OverloadedError", "started", "OverloadedError",
    ]  # fmt: skip
    ends.host.send(Abort((60, 41)))
    assert [await comes_in(number) for number in (61, 59)] == ["OverloadedError", "started"]
    backend.refuses = True
    assert await comes_in(1) == "ParameterError"
    backend.refuses = False
    assert await comes_in(1) == "started"
    ends.host.close()
    await asyncio.wait_for(running, 10)


A, B = adapter("a", 1, preload=False), adapter("b", 2)


class Adapted(Noting):
    """One with adapters, that keeps one of them; it cannot prepare the prompt "broken"."""

    def __init__(self) -> None:
        super().__init__()
        self.adapters = Loader(most_loaded=1, most_pinned=0)

    def prepare(self, number: int, generation: Generation, images: Sequence[MediaFile] = ()) -> Any:
        if generation.prompt == "broken":
            raise ParameterError("not this prompt")
        return super().prepare(number, generation, images)


class Running:
    """A loop at work, with the host's end of its channel."""

    def __init__(self, ends: Ends) -> None:
        self.backend = Adapted()
        self.loader = self.backend.adapters
        self.host = ends.host
        self.loop = EngineLoop(ends.engine, self.backend, MediaRules())
        self.running = asyncio.ensure_future(self.loop.run())

    def add(self, number: int, key: str | None, prompt: str = "a", *, held: bool = False) -> None:
        self.host.post(Add(number, Generation(request_id="r", prompt=prompt, adapter=key, held=held)))

    async def told(self) -> Any:
        """The next message to the host but those about how busy the engine is."""
        while isinstance(message := await asyncio.to_thread(self.host.receive), Stats):
            pass
        return message

    async def event(self) -> tuple[int, Any]:
        """The next event."""
        message = await self.told()
        assert isinstance(message, Step)
        (event,) = message.events
        return event

    async def after(self) -> None:
        """Once everything that has been posted is done: with a generation that names no adapter."""
        self.add(99, None)
        await until(lambda: ("add", 99) in self.backend.told)
        self.backend.told.remove(("add", 99))

    async def end(self) -> None:
        assert self.loader.faults == []
        self.host.close()
        await asyncio.wait_for(self.running, 10)


@pytest.fixture
async def running(ends: Ends) -> AsyncIterator[Running]:
    running = Running(ends)
    yield running
    await running.end()


async def test_what_names_an_adapter_starts_when_that_is_loaded(running: Running) -> None:
    running.loader.held = asyncio.Event()
    running.host.post(SetAdapter(A))
    assert await running.told() == AdapterOutcome(A.key)
    running.add(1, A.key)
    await running.after()
    assert running.backend.told == []
    running.loader.held.set()
    await until(lambda: running.backend.told)
    assert running.backend.told == [("add", 1)]


async def test_the_host_is_told_what_became_of_a_registration(running: Running) -> None:
    running.loader.errors[B.key] = AdapterError("it is broken", "adapters")
    running.host.post(SetAdapter(B))
    assert await running.told() == AdapterOutcome(B.key, ErrorMessage("AdapterError", "it is broken", "adapters"))


async def test_a_generation_fails_with_the_load_of_its_adapter(running: Running) -> None:
    running.loader.errors[A.key] = AdapterError("it is broken")
    running.host.post(SetAdapter(A))
    await running.told()
    running.add(1, A.key)
    running.add(2, "of which#7")
    failed = dict([await running.event(), await running.event()])
    assert {number: event.error.message for number, event in failed.items()} == {
        1: "adapter a could not be loaded: it is broken",
        2: "the adapter has been unregistered",
    }
    assert running.backend.told == []


async def test_one_that_is_aborted_while_it_waits_for_its_adapter_never_starts(running: Running) -> None:
    running.loader.held = asyncio.Event()
    running.host.post(SetAdapter(A))
    await running.told()
    for number in (1, 2):
        running.add(number, A.key)
    await until(lambda: running.loader.told)
    running.host.post(Abort((1,)))
    await until(lambda: running.backend.told)
    running.loader.held.set()
    await until(lambda: len(running.backend.told) > 1)
    await running.after()
    assert running.backend.told == [("abort", 1), ("add", 2)]


async def test_one_that_is_held_back_waits_for_its_adapter_when_it_is_released(running: Running) -> None:
    running.host.post(SetAdapter(A))
    await running.told()
    running.add(1, A.key, held=True)
    running.add(2, A.key, held=True)
    assert {await running.event(), await running.event()} == {(1, Rendered("prompt 1")), (2, Rendered("prompt 2"))}
    await running.after()
    # Nobody knows whether it will ever run.
    assert running.loader.told == []
    running.host.post(Abort((2,)))
    running.host.post(RemoveAdapter(A.key))
    running.host.post(Release((1,)))
    await until(lambda: ("add", 1) in running.backend.told)
    assert running.loader.loaded == [A.key]
    running.host.post(Abort((1,)))
    await until(lambda: running.loader.known == set())


async def failed_to_prepare(running: Running) -> None:
    running.add(1, B.key, "broken")


async def refused_by_the_engine(running: Running) -> None:
    running.backend.refuses = True
    running.add(1, B.key)


async def ended_in_the_engine(running: Running) -> None:
    running.add(1, B.key)
    await until(lambda: ("add", 1) in running.backend.told)
    finish = Finish("eos", generated_tokens=1, cumulative_logprob=0.0)
    running.backend.brought.put_nowait([(1, Delta(0, "", (), finish))])


async def made_what_cannot_be_sent(running: Running) -> None:
    running.add(1, B.key)
    await until(lambda: ("add", 1) in running.backend.told)
    running.backend.brought.put_nowait([(1, Delta(0, "\ud800"))])


async def aborted(running: Running) -> None:
    running.add(1, B.key)
    running.host.post(Abort((1,)))


@pytest.mark.parametrize(
    "end", [failed_to_prepare, refused_by_the_engine, ended_in_the_engine, made_what_cannot_be_sent, aborted]
)
async def test_a_generation_that_ends_lets_go_of_its_adapter(
    running: Running, end: Callable[[Running], Awaitable[None]]
) -> None:
    """Or it would take its place for ever, and others would wait for it."""
    running.host.post(SetAdapter(B))
    assert await running.told() == AdapterOutcome(B.key)
    await end(running)
    running.host.post(RemoveAdapter(B.key))
    await until(lambda: running.loader.known == set())
    assert running.loader.told == ["load b#2", "unload b#2"]


async def test_the_start_says_which_adapters_could_not_be_loaded(ends: Ends) -> None:
    backend = Adapted()
    backend.adapters.errors[B.key] = AdapterError("it is broken")
    faults = await EngineLoop(ends.engine, backend, MediaRules()).begin([A, B])
    assert {key: error.message for key, error in faults.items()} == {B.key: "it is broken"}
    assert backend.adapters.known == {A.key, B.key}


async def test_an_engine_without_adapters_has_none_at_its_start(ends: Ends) -> None:
    assert await EngineLoop(ends.engine, Noting(), MediaRules()).begin([A]) == {}
