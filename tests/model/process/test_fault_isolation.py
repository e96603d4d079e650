"""The engine's side of the table of faults (docs/robustness.md): one fault at each boundary, beside a running request.

The fault's own request ends at once with an error, the cause is in the log, and all others go on. What the hosts' side
has of the table: tests/handler/test_fault_isolation.py; vLLM's steps: tests/model/vllm/test_engine.py.
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from lmi.model.process.client import EngineClient

from ...kit.api.engine import Ranking
from ...kit.api.errors import LmiError
from ...kit.api.options import typed_settings
from ...kit.api.types import Delta, EngineEvent, Failed, Generation, Sampling
from ...kit.paths import ENGINE_FAULTS
from ...kit.rows import each_row

NEIGHBOUR = "many tokens"
ANSWER = "".join(f"{step} " for step in range(50)) + "an answer"
WAIT_S = 30.0


@dataclass
class Running:
    """The engine, what its process logs, and who listens."""

    engine: EngineClient
    process_log: Path
    listener: Callable[[], None] = lambda: None

    def heard(self) -> None:
        self.listener()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    log = tmp_path_factory.mktemp("faults") / "log"
    with pytest.MonkeyPatch.context() as patch, log.open("wb") as file:
        patch.syspath_prepend(str(ENGINE_FAULTS))
        engine = EngineClient(typed_settings(model_id="a-hub/id", engine_stall_timeout=0.0, log_requests="true"))
        made = Running(engine, log)
        engine.listen(made.heard)
        stderr = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            engine.start()
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        yield made
        engine.close()


class Asked:
    """A generation and what has come of it; what `submit` raises is its failure, as in handler/exchange.py."""

    def __init__(self, engine: EngineClient, prompt: str, sampling: Sampling, raises: bool = False) -> None:
        self._raises = raises
        self._events: queue.Queue[EngineEvent] = queue.Queue()
        try:
            engine.submit(Generation(request_id="r", prompt=prompt, sampling=sampling), self._sink)
        except LmiError as error:
            self._events.put(Failed.of(error))

    def _sink(self, event: EngineEvent) -> None:
        if self._raises and not isinstance(event, Failed):
            raise KeyError("a fault in the sink")
        self._events.put(event)

    def end(self) -> Failed | str:
        """How it failed, or what it said."""
        text = ""
        while True:
            event = self._events.get(timeout=WAIT_S)
            if isinstance(event, Failed):
                return event
            if isinstance(event, Delta):
                text += event.text
                if event.finish is not None:
                    return text


def fault(*_: Any) -> Any:
    raise KeyError("a fault")


UNTYPED: Any = 5.0
TOO_LARGE: Any = 2**70


PLAIN = Sampling()


@dataclass(frozen=True)
class Row:
    boundary: str
    cause: str
    """What the log has: the engine's process', or the worker's."""
    prompt: str = "hello"
    sampling: Sampling = PLAIN
    said: str | None = ""
    """In the error; None: no request depends on what failed, and it is answered."""
    at: Literal["", "sink", "ranking", "listener"] = ""
    """What of the worker's fails."""


TABLE = [
    Row("the worker encodes a request", "", sampling=Sampling(seed=TOO_LARGE), said="could not be submitted"),
    Row("the engine decodes a request", "Expected `int | null`", sampling=Sampling(top_k=UNTYPED), said="got `float`"),
    Row("prepare", "fault in prepare", "fault in prepare", said="fault in prepare"),
    Row("prepare: a panic of a library's", "a panic", "panic in prepare", said="a panic"),
    Row("prepare: no memory", "MemoryError", "no memory in prepare"),
    Row("add", "a fault in add", "fault in add", said="a fault in add"),
    Row("add: a panic of a library's", "a panic in add", "panic in add", said="a panic in add"),
    Row("add: no memory", "no room for it", "no memory in add", said="no room for it"),
    Row("the engine encodes an event", "type object is unsupported", "cannot be encoded", said="could not be sent"),
    Row("the worker decodes an event", "cannot be decoded", "cannot be decoded", said="Expected `str`, got `int`"),
    Row("a sink", "a fault in the sink", at="sink", said="could not be delivered: KeyError"),
    Row("the sink that ranks", "a fault", sampling=Sampling(best_of=2), at="ranking", said="KeyError"),
    Row("a listener", "a fault", said=None, at="listener"),
]
NUMBERS = [
    Row("the engine's numbers", "a fault in stats", "fault in stats", said=None),
    # A second time it is not logged.
    Row("the engine's numbers cannot be sent", "", "odd stats", said=None),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.boundary)
def test_a_fault_ends_its_own_request_alone(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, row: Row
) -> None:
    alone(running, monkeypatch, caplog, row)


@each_row("row", NUMBERS, ids=lambda row: row.boundary)
def test_a_fault_of_the_numbers_ends_no_request(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, row: Row
) -> None:
    alone(running, monkeypatch, caplog, row)


def alone(running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, row: Row) -> None:
    """What the row says fails, its own request only, and is logged."""
    engine = running.engine
    logged_before = len(running.process_log.read_text())
    neighbour = Asked(engine, NEIGHBOUR, PLAIN)
    if row.at == "listener":
        monkeypatch.setattr(running, "listener", fault)
    if row.at == "ranking":
        monkeypatch.setattr(Ranking, "_rank", fault)
    faulty = Asked(engine, row.prompt, row.sampling, row.at == "sink")
    end = faulty.end()
    if row.said is None:
        assert str(end).endswith("an answer")
    else:
        assert isinstance(end, Failed)
        assert (end.kind, row.said in end.message) == ("GenerationError", True), end
    assert neighbour.end() == ANSWER
    monkeypatch.undo()
    # Nothing of it is left, and what comes later is served by the same process.
    assert Asked(engine, "hello", PLAIN).end() == "an answer"
    assert engine.running == 0
    assert engine.deaths == 0
    deadline = time.monotonic() + WAIT_S
    while row.cause not in caplog.text + running.process_log.read_text()[logged_before:]:
        assert time.monotonic() < deadline, "the cause is not in the log"
        time.sleep(0.01)
