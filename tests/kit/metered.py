"""A service whose clock a test moves, and what its metrics are then."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lmi.formatters import Request
from lmi.handler.exchange import Exchange
from lmi.handler.scraping.exposition import Exposition
from lmi.handler.telemetry import metrics as counted
from lmi.model.events import Delta, Finish

from .api.handler import started_service
from .user_code.engine import ScriptedEngine

__all__ = ["Bench", "Clock", "Sample", "parsed", "timed_bench"]

Sample = tuple[str, tuple[tuple[str, str], ...]]


def parsed(text: str) -> dict[Sample, float]:
    """Prometheus' text form: value by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Clock:
    """Stands for time.monotonic; moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A service on an engine that says what the test tells it to, at times that the test tells."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.engine = ScriptedEngine()
        self.service = started_service(self.engine)
        self.metrics = self.service.metrics

    def open(self, *, stream: bool = True, **body: object) -> Exchange:
        opened = self.service.open(Request(json.dumps({"stream": stream, **(body or {"inputs": "Hi"})}).encode()))
        assert isinstance(opened, Exchange)
        return opened

    def step(self, at: float, *tickets: int, finish: int | None = None) -> None:
        """One step of the engine: a token for each ticket."""
        self.clock.now = at
        end = None if finish is None else Finish("eos", generated_tokens=finish)
        for ticket in tickets:
            sink = self.engine.sinks[ticket]
            sink(Delta(0, "a", finish=end))
            if end:
                del self.engine.sinks[ticket]
        self.engine.say(-1)

    def samples(self, accept: str = "") -> dict[Sample, float]:
        text, _ = Exposition(self.service).render(accept)
        return parsed(text.decode())


def timed_bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench by whose clock the metrics count."""
    clock = Clock()
    monkeypatch.setattr(counted, "monotonic", clock)
    return Bench(clock)
