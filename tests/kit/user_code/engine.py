"""An engine that says what a test tells it to."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from lmi.model.adapters.adapter import Adapter
from lmi.model.engine import EngineInfo, EngineStats, Listener, Sink
from lmi.model.errors import LmiError, UnavailableError
from lmi.model.events import Delta, EngineEvent, Failed, Finish, Started, Token
from lmi.model.generation import Generation
from lmi.model.process.dispatch import Dispatcher
from lmi.model.process.messages import Step


class ScriptedAdapters:
    """An EngineAdapters: what is registered is loaded at once, but for those of `errors`, by name."""

    def __init__(self) -> None:
        self.faults: dict[str, LmiError] = {}
        self.registered: dict[str, Adapter] = {}
        self.errors: dict[str, LmiError] = {}
        self.held: Future[None] | None = None
        """What is given for each, where a test holds them up."""
        self.added: list[Adapter] = []
        """All that it was asked for, and what was removed, by key."""
        self.removed: list[str] = []

    def add(self, adapter: Adapter) -> Future[None]:
        self.added.append(adapter)
        future: Future[None] = Future()
        if (error := self.errors.get(adapter.name)) is not None:
            future.set_exception(error)
            return future
        self.registered[adapter.key] = adapter
        if self.held is not None:
            return self.held
        future.set_result(None)
        return future

    def remove(self, key: str) -> None:
        self.removed.append(key)
        self.registered.pop(key, None)


class ScriptedEngine:
    """An Engine: `say` hands events to a generation as one step does."""

    healthy = True
    stats = EngineStats()
    deaths = rebuilds = 0
    process_id = None

    metrics: bytes | None = b""
    """What it tells of itself; None: it does not answer."""

    down: str = ""
    """Why nothing can be submitted now."""

    def __init__(self) -> None:
        self.submit_then: list[EngineEvent] = []
        """What each generation is told at once."""
        self.generations: list[Generation] = []
        self.sinks: dict[int, Sink] = {}
        self.aborted: list[int] = []
        self.released: list[int] = []
        self.gathered: list[float] = []
        """What was asked for by `gather`."""
        self.ready: list[tuple[int, EngineEvent]] = []
        """What a host finds when it reads."""
        self._listeners: list[Listener] = []
        self.adapters = ScriptedAdapters()

    @property
    def running(self) -> int:
        return len(self.sinks)

    @property
    def down_reason(self) -> str:
        return self.down or "the engine is down"

    def start(self) -> EngineInfo:
        return EngineInfo(engine="scripted", version="0", context=2048)

    def submit(self, generation: Generation, sink: Sink) -> int:
        if self.down:
            raise UnavailableError(self.down)
        ticket = len(self.generations)
        self.sinks[ticket] = sink
        self.generations.append(generation)
        for event in self.submit_then:
            sink(event)
        return ticket

    def release(self, tickets: Sequence[int]) -> None:
        self.released += tickets

    def abort(self, tickets: Sequence[int]) -> None:
        self.aborted += [ticket for ticket in tickets if self.sinks.pop(ticket, None) is not None]

    def gather(self, seconds: float) -> None:
        self.gathered.append(seconds)

    def die(self, why: str) -> None:
        """Ends what runs, as an engine's end does."""
        for ticket in list(self.sinks):
            if sink := self.sinks.pop(ticket, None):
                sink(Failed.of(UnavailableError(why)))
        for listener in self._listeners:
            listener()

    def deliver(self, sink: Sink, event: EngineEvent) -> None:
        sink(event)

    def read_on(self, loop: object) -> None:
        """It has no thread."""

    def read_ready(self) -> None:
        ready, self.ready = self.ready, []
        for ticket, event in ready:
            self.say(ticket, event)

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def scrape(self, content_type: str) -> Future[bytes]:
        future: Future[bytes] = Future()
        if self.metrics is not None:
            future.set_result(self.metrics)
        return future

    def close(self) -> None:
        self.die("the server is shutting down")

    def say(self, ticket: int, *events: EngineEvent) -> None:
        """Events of one step; those of a generation that was aborted go nowhere."""
        for event in events:
            last = isinstance(event, Failed) or (isinstance(event, Delta) and event.finish and event.finish.last)
            if sink := self.sinks.pop(ticket, None) if last else self.sinks.get(ticket):
                sink(event)
        for listener in self._listeners:
            listener()


class TalkingEngine(ScriptedEngine):
    """Says "a" and "b" to each generation, a token a step, on a thread of its own; `close` ends it.

    Begins once it is given the prompt `awaited`. What a step brings is handed out as the client of a real engine does.
    """

    def __init__(self, awaited: str) -> None:
        super().__init__()
        self._awaited = awaited
        self._begun = threading.Event()
        self._closed = threading.Event()
        self._dispatcher = Dispatcher()
        self._listeners = self._dispatcher.listeners
        self._child: Any = SimpleNamespace(sinks=self.sinks, served=False, abort=lambda numbers: None)
        self._steps: dict[int, int] = {}
        self._thread = threading.Thread(target=self._talk, daemon=True)

    def start(self) -> EngineInfo:
        self._thread.start()
        return super().start()

    def submit(self, generation: Generation, sink: Sink) -> int:
        ticket = super().submit(generation, sink)
        if generation.prompt == self._awaited:
            self._begun.set()
        return ticket

    def die(self, why: str) -> None:
        self._dispatcher.fail(self._child, Failed.of(UnavailableError(why)))

    def deliver(self, sink: Sink, event: EngineEvent) -> None:
        self._dispatcher.deliver(sink, event)

    def close(self) -> None:
        self._closed.set()
        self._begun.set()
        self._thread.join(30)
        super().close()

    def _talk(self) -> None:
        self._begun.wait()
        while not self._closed.wait(0.001):
            self._dispatcher.step(Step([(ticket, self._next(ticket)) for ticket in list(self.sinks)]), self._child)

    def _next(self, ticket: int) -> EngineEvent:
        step = self._steps[ticket] = self._steps.get(ticket, 0) + 1
        if step == 1:
            return Started(1)
        finish = Finish("eos", generated_tokens=2, cumulative_logprob=-1.0) if step == 3 else None
        text = "ab"[step - 2]
        return Delta(0, text, (Token(step, text, -0.5),), finish)
