"""The host's side of an engine, without one."""

from __future__ import annotations

import gc
import json
import random
import socket
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from lmi.model.process.client import EngineClient

from ...kit.api.engine import Abort, Add, Channel, EngineChild, FromEngine, Release, ToEngine
from ...kit.api.errors import UnavailableError
from ...kit.api.handler import Exchange, RequestStats, Service, started_service
from ...kit.api.options import make_settings
from ...kit.api.types import EngineEvent, EngineInfo, Failed, Generation, Request, Sampling


class Nobody:
    def __call__(self, event: EngineEvent) -> None:
        raise AssertionError(f"nobody was to be told {event}")


def test_what_is_refused_while_there_is_no_engine_is_not_kept(tmp_path: Path) -> None:
    """An exception that is raised for each request keeps the frames of all of them, for as long as it lives."""
    engine = EngineClient(make_settings(tmp_path))
    sink = Nobody()
    gone = weakref.ref(sink)
    with pytest.raises(UnavailableError, match="the engine is not started"):
        engine.submit(Generation(request_id="1", prompt="x", sampling=Sampling()), sink)
    del sink
    gc.collect()
    assert gone() is None


class Ending(EngineClient):
    """An engine that ends while a request's second prompt is handed to it: its own thread tells the first prompt."""

    def __init__(self, model_dir: Path) -> None:
        super().__init__(make_settings(model_dir))
        self.first: Callable[[EngineEvent], None]
        self.thread = threading.Thread(target=self.end)
        self.telling = threading.Event()
        self.refused = threading.Event()

    def start(self) -> EngineInfo:
        return EngineInfo(engine="ending", version="0", context=2048)

    def submit(self, generation: Generation, sink: Callable[[EngineEvent], None]) -> int:
        if self.thread.ident is None:
            self.first = sink
            self.thread.start()
            assert self.telling.wait(30)
            return 1
        raise UnavailableError("gone")

    def deliver(self, sink: Callable[[EngineEvent], None], event: EngineEvent) -> None:
        self.refused.set()
        super().deliver(sink, event)

    def end(self) -> None:
        with self._dispatcher.lock:
            self.telling.set()
            self.first(Failed.of(UnavailableError("gone")))


def test_one_end_is_told_once_however_many_prompts_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Ending(tmp_path)
    service = started_service(engine, tmp_path)
    finish = service.metrics.finish

    def slowly(meter: RequestStats, exchange: Exchange, *, aborted: bool) -> None:
        # The reply has made its body; the other thread may come now.
        engine.refused.wait(0.5)
        finish(meter, exchange, aborted=aborted)

    monkeypatch.setattr(service.metrics, "finish", slowly)
    exchange = service.open(Request(b'{"prompt": ["a", "b"]}', path="/v1/completions"))
    engine.thread.join(30)
    assert exchange.finished
    (body,) = exchange.records
    assert json.loads(body)["error"]["message"] == "gone"


class Deaf(EngineChild):
    """The link to an engine's process that reads nothing until it is told to."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.channel: Channel[FromEngine] = Channel(ours, FromEngine)
        self.theirs: Channel[ToEngine] = Channel(theirs, ToEngine)
        self.sinks = {}

    def read(self, last: int, pause: float = 0.0) -> list[Add | Abort]:
        """Messages, up to that which starts generation `last`."""
        messages: list[Add | Abort] = []
        while not messages or not (isinstance(messages[-1], Add) and messages[-1].number == last):
            message = self.theirs.receive()
            assert isinstance(message, Add | Abort)
            messages.append(message)
            time.sleep(pause)
        return messages


class Stopped(EngineClient):
    """An engine whose process stands still."""

    def __init__(self, model_dir: Path) -> None:
        super().__init__(make_settings(model_dir))
        self.link = self._child = Deaf()
        self.submitted = 0

    def start(self) -> EngineInfo:
        return EngineInfo(engine="stopped", version="0", context=2048)

    def submit(self, generation: Generation, sink: Callable[[EngineEvent], None]) -> int:
        number = super().submit(generation, sink)
        self.submitted += 1
        return number

    def close(self) -> None:
        self.link.channel.close()
        self.link.theirs.close()


MEGABYTE = 1 << 20


def opened(engine: Stopped, service: Service, body: bytes) -> Exchange:
    """A request that has been handed to the engine: a large body is read on a thread of its own."""
    before, deadline = engine.submitted, time.monotonic() + 30
    exchange = service.open(Request(body))
    while engine.submitted == before:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return exchange


def test_what_is_aborted_does_not_wait_for_an_engine_that_does_not_read(tmp_path: Path) -> None:
    """Clients that post a lot and leave, again and again: no more of it is held than is under way."""
    engine = Stopped(tmp_path)
    service = started_service(engine, tmp_path)
    body = json.dumps({"inputs": "a" * MEGABYTE}).encode()
    try:
        for _ in range(50):
            opened(engine, service, body).abort()
            assert service.admission.open == 0
        staying = opened(engine, service, body)
        # The first one was under way. Of the others the engine never hears: nothing of them was held.
        messages = engine.link.read(51)
        assert [type(one) for one in messages] == [Add, Abort, Add]
        assert messages[1] == Abort((1,))
        assert isinstance(messages[2], Add)
        assert messages[2].generation.prompt == "a" * MEGABYTE
        staying.abort()
        assert engine.link.theirs.receive() == Abort((51,))
    finally:
        service.close()


def test_only_what_still_runs_is_released(tmp_path: Path) -> None:
    engine = Stopped(tmp_path)
    held = Generation(request_id="r", prompt=(1,), held=True)
    try:
        kept, aborted = engine.submit(held, Nobody()), engine.submit(held, Nobody())
        engine.abort([aborted])
        engine.release([aborted])
        engine.release([kept, aborted, 99])
        told = [engine.link.theirs.receive() for _ in range(4)]
        assert told == [Add(kept, held), Add(aborted, held), Abort((aborted,)), Release((kept,))]
    finally:
        engine.close()
    # The engine has just ended: its sinks are told so.
    engine.release([kept])


def test_what_is_withdrawn_and_what_is_sent_agree(tmp_path: Path) -> None:
    """Two threads that start and abort beside a slow reader: the engine hears of each once, or of its start and end."""
    engine = Stopped(tmp_path)
    link = engine.link
    kept: list[int] = []
    aborted: list[int] = []

    def run(seed: int) -> None:
        draw = random.Random(seed)
        mine: list[int] = []
        for _ in range(300):
            size = draw.choice([10, 1000, 200_000])
            mine.append(
                engine.submit(Generation(request_id="", prompt="a" * size, sampling=Sampling()), lambda _: None)
            )
            if draw.random() < 0.7:
                leaving = [mine.pop(draw.randrange(len(mine))) for _ in range(min(len(mine), draw.randint(1, 3)))]
                engine.abort(leaving)
                aborted.extend(leaving)
        kept.extend(mine)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in (1, 2)]
    read: list[Add | Abort] = []
    reading = threading.Thread(target=lambda: read.extend(link.read(last=601, pause=0.002)))
    reading.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert engine.submit(Generation(request_id="", prompt="", sampling=Sampling()), lambda _: None) == 601
    reading.join(60)
    assert not reading.is_alive()
    started = [one.number for one in read if isinstance(one, Add)]
    ended = [number for one in read if isinstance(one, Abort) for number in one.numbers]
    assert len(set(started)) == len(started)
    assert len(set(ended)) == len(ended)
    assert set(kept) | set(ended) | {601} == set(started)
    assert set(ended) < set(aborted)
    for number in ended:
        assert _at(read, Add, number) < _at(read, Abort, number)
    engine.close()


def _at(read: list[Add | Abort], kind: type[Add | Abort], number: int) -> int:
    """Where a generation is started, or ended."""
    numbers = [(one.number,) if isinstance(one, Add) else one.numbers for one in read]
    (found,) = [at for at, one in enumerate(read) if isinstance(one, kind) and number in numbers[at]]
    return found
