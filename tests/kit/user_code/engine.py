"""An engine that says what a test tells it to."""

from __future__ import annotations

from collections.abc import Sequence

from lmi.model.engine import EngineInfo, EngineStats, Listener, Sink
from lmi.model.errors import LmiError, UnavailableError
from lmi.model.events import Delta, EngineEvent, Failed
from lmi.model.generation import Generation


class ScriptedEngine:
    """An Engine: `say` hands events to a generation as one step does."""

    healthy = True
    stats = EngineStats()
    deaths = rebuilds = 0
    process_id = None

    down: str = ""
    """Why nothing can be submitted now."""

    def __init__(self) -> None:
        self.submit_then: list[EngineEvent] = []
        """What each generation is told at once."""
        self.generations: list[Generation] = []
        self.sinks: dict[int, Sink] = {}
        self.aborted: list[int] = []
        self.released: list[int] = []
        self._listeners: list[Listener] = []

    @property
    def running(self) -> int:
        return len(self.sinks)

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

    def fail(self, tickets: Sequence[int], error: LmiError) -> None:
        for ticket in tickets:
            if sink := self.sinks.pop(ticket, None):
                sink(Failed.of(error))
        for listener in self._listeners:
            listener()

    def deliver(self, sink: Sink, event: EngineEvent) -> None:
        sink(event)

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def close(self) -> None:
        self.fail(list(self.sinks), UnavailableError("the server is shutting down"))

    def say(self, ticket: int, *events: EngineEvent) -> None:
        """Events of one step; those of a generation that was aborted go nowhere."""
        for event in events:
            last = isinstance(event, Failed) or (isinstance(event, Delta) and event.finish and event.finish.last)
            if sink := self.sinks.pop(ticket, None) if last else self.sinks.get(ticket):
                sink(event)
        for listener in self._listeners:
            listener()
