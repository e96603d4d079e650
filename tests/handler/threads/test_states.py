"""An exchange in each of its states, and what may happen to it there, in every order of two (handler/states.py).

Whatever happens, the request ends once, and nothing of it is left: no place in admission, no generation, no thread.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ...kit.api.errors import GenerationError, LmiError, TimeLimitError
from ...kit.api.handler import (
    Deferred,
    Exchange,
    NotReadyError,
    Prepared,
    Relayed,
    RelayedReply,
    Service,
    State,
    Task,
    Workers,
    started_service,
)
from ...kit.api.types import Delta, Event, Failed, Finish, Generation, ParsedRequest, Request, Response, Started, Token
from ...kit.user_code.engine import ScriptedEngine
from ...kit.waiting import until

TIMEOUT_S = 30.0
TOKEN = Delta(0, "a", (Token(1, "a", -0.5),))
LAST = Delta(0, "b", (Token(2, "b", -0.5),), Finish("eos", generated_tokens=2))


class Gate:
    """Where a thread stands until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def stand(self) -> None:
        self.reached.set()
        assert self.open.wait(TIMEOUT_S)

    async def stand_async(self) -> None:
        self.reached.set()
        while not self.open.is_set():  # noqa: ASYNC110 - the test opens it on another thread
            await asyncio.sleep(0.001)


class Reply:
    """An encoder that does something for each token."""

    status = 200
    content_type = "text/plain"

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self.headers: dict[str, str] = {}
        self.failure: LmiError | None = None
        self.finished = False
        self._act = act

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        if isinstance(event, Failed):
            self.failure, self.finished = event.error, True
            return [b"error"]
        if not isinstance(event, Delta):
            return []
        self._act()
        self.finished = event.finish is not None
        return [event.text.encode()]

    def end_of_stream(self, error: LmiError) -> list[bytes]:
        self.failure, self.finished = error, True
        return [b"error"]


class Stage:
    """One exchange, and what it depends on."""

    def __init__(self) -> None:
        self.engine = ScriptedEngine()
        self.service: Service = started_service(self.engine)
        self.workers = Workers(1, 50.0)
        self.gate = Gate()
        self.ready: Future[None] = Future()
        self.further = 0
        """How many user functions ran after the one at the gate."""
        self.exchange: Exchange
        self.submit: Callable[[], None] = lambda: None
        """What whoever opened it has yet to do."""

    # What a request's own work does at the gate, and after it.

    def in_own_code(self) -> None:
        self.gate.stand()
        self.workers.run("user", self.go_further)

    def in_user_code(self) -> None:
        self.workers.run("user", self.gate.stand)
        self.workers.run("user again", self.go_further)

    def awaiting_user_code(self) -> None:
        self.workers.run("user", self.gate.stand_async)
        self.workers.run("user again", self.go_further)

    def go_further(self) -> None:
        self.further += 1

    # How it gets into a state.

    def defer(self, prepare: Callable[[], Any]) -> None:
        service = self.service
        meter = service.metrics.open(Request(b""))
        # As hosts have it: who is told of news has the exchange.
        host = SimpleNamespace()
        host.exchange = exchange = self.exchange = Deferred(
            prepare,
            lambda error: Response(error.message.encode(), error.status, failure=error),
            self.engine,
            service.admission,
            self.workers,
            meter=meter,
            notify=lambda: None,
            on_news=lambda _: void(host),
        )
        meter.admit()
        service.admission.admit(exchange)
        exchange.begin()

    def prepared(self, act: Callable[[], object] = lambda: None, *, on_threads: bool = True) -> Prepared:
        return Prepared(
            ParsedRequest((Generation(request_id="", prompt="Hi"),), Reply(act), stream=True), on_threads=on_threads
        )

    def say(self, *events: Any) -> None:
        for ticket in list(self.engine.sinks):
            self.engine.say(ticket, *events)

    def running(self, act: Callable[[], object] = lambda: None, *, on_threads: bool = True) -> None:
        self.defer(lambda: self.prepared(act, on_threads=on_threads))
        until(lambda: self.engine.sinks and self.idle)
        assert self.exchange.state is State.RUNNING

    def writing(self, act: Callable[[], object]) -> None:
        self.running(act)
        self.say(Started(1), TOKEN)
        assert self.gate.reached.wait(TIMEOUT_S)

    def relaying(self, act: Callable[[], object]) -> None:
        def records() -> Generator[bytes]:
            yield b"a"
            act()
            yield b"b"

        self.defer(lambda: Relayed(ParsedRequest((), RelayedReply(), stream=True), records()))
        assert self.gate.reached.wait(TIMEOUT_S)

    def close(self) -> None:
        self.gate.open.set()
        self.workers.close()
        self.service.close()
        until(lambda: not self.workers._threads)

    @property
    def idle(self) -> bool:
        """Whether no thread works."""
        workers = self.workers
        return not workers._queue and workers._idle + workers._stuck >= workers._threads

    def let_go(self) -> None:
        """Lets everything end that can."""
        self.submit()
        self.gate.open.set()
        if not self.ready.done():
            self.ready.set_result(None)
        until(lambda: self.idle)
        self.say(Started(1), LAST)
        until(lambda: self.exchange.finished and self.idle)


def waiting_for_a_thread(stage: Stage) -> None:
    stage.workers.submit(Task(stage.gate.stand, lambda _: None))
    assert stage.gate.reached.wait(TIMEOUT_S)

    def prepare() -> Prepared:
        stage.go_further()
        return stage.prepared()

    stage.defer(prepare)
    assert stage.exchange.state is State.WAITING


def waiting_for_an_adapter(stage: Stage) -> None:
    def prepare() -> Prepared:
        if not stage.ready.done():
            raise NotReadyError(stage.ready)
        stage.go_further()
        return stage.prepared()

    stage.defer(prepare)
    until(lambda: stage.idle and stage.exchange.state is State.WAITING)


def preparing(how: Callable[[Stage], Callable[[], None]]) -> Callable[[Stage], None]:
    def arrange(stage: Stage) -> None:
        def prepare() -> Prepared:
            how(stage)()
            return stage.prepared()

        stage.defer(prepare)
        assert stage.gate.reached.wait(TIMEOUT_S)
        assert stage.exchange.state is State.PREPARING

    return arrange


def raising(stage: Stage) -> None:
    """Its user code will fail."""

    def prepare() -> Prepared:
        stage.gate.stand()
        raise ValueError("user code failed")

    stage.defer(prepare)
    assert stage.gate.reached.wait(TIMEOUT_S)


def plain(stage: Stage) -> None:
    stage.exchange = stage.service.open(Request(b'{"inputs": "Hi", "stream": true}'))
    assert stage.exchange.state is State.RUNNING


def plain_begun(stage: Stage) -> None:
    plain(stage)
    stage.say(Started(1), TOKEN)
    assert stage.exchange.begun


def not_submitted(stage: Stage) -> None:
    """Prepared where it was opened, and admitted."""
    service = stage.service
    meter = service.metrics.open(Request(b""))
    exchange = stage.exchange = Exchange(
        stage.engine, service.admission, meter=meter, notify=lambda: None, call=stage.prepared().call
    )
    meter.admit()
    service.admission.admit(exchange)
    stage.submit = exchange.submit


def ending(stage: Stage) -> None:
    stage.writing(stage.in_own_code)
    stage.exchange.expire(TimeLimitError("first"))
    assert stage.exchange.state is State.ENDING


def answered(stage: Stage) -> None:
    stage.defer(lambda: Response(b"answer"))
    until(lambda: stage.exchange.finished)


def refused(stage: Stage) -> None:
    stage.exchange = stage.service.open(Request(b"no JSON"))
    assert stage.exchange.state is State.ENDED


STATES: dict[str, Callable[[Stage], None]] = {
    "waiting for a thread": waiting_for_a_thread,
    "waiting for an adapter": waiting_for_an_adapter,
    "preparing": preparing(lambda stage: stage.in_own_code),
    "preparing in user code": preparing(lambda stage: stage.in_user_code),
    "preparing, user code awaits": preparing(lambda stage: stage.awaiting_user_code),
    "preparing, user code raises": raising,
    "running": plain,
    "running, not submitted yet": not_submitted,
    "running, begun": plain_begun,
    "running, prepared on a thread": lambda stage: stage.running(on_threads=False),
    "running on threads, nothing to write": lambda stage: stage.running(),
    "running, written in user code": lambda stage: stage.writing(stage.in_user_code),
    "running, written by awaiting user code": lambda stage: stage.writing(stage.awaiting_user_code),
    "running, written in our own code": lambda stage: stage.writing(stage.in_own_code),
    "running, relayed from user code": lambda stage: stage.relaying(stage.in_user_code),
    "running, relayed from awaiting user code": lambda stage: stage.relaying(stage.awaiting_user_code),
    "ending": ending,
    "ended with an answer": answered,
    "ended with a refusal": refused,
}


def go_on(stage: Stage) -> None:
    stage.submit()
    stage.submit = lambda: None
    stage.gate.open.set()
    until(lambda: stage.idle)


def be_ready(stage: Stage) -> None:
    if not stage.ready.done():
        stage.ready.set_result(None)


def die(stage: Stage) -> None:
    stage.engine.down = "the engine died"
    stage.engine.die("the engine died")


EVENTS: dict[str, Callable[[Stage], None]] = {
    "its thread goes on": go_on,
    "its adapter is there": be_ready,
    "a token": lambda stage: stage.say(Started(1), TOKEN),
    "the last token": lambda stage: stage.say(Started(1), LAST),
    "a failure in the engine": lambda stage: stage.say(Failed.of(GenerationError("broken"))),
    "the engine dies": die,
    "expire": lambda stage: stage.exchange.expire(TimeLimitError("late")),
    "abort": lambda stage: stage.exchange.abort(),
    "user code hangs": lambda stage: void(stage.workers.sweep(time.monotonic() + 100)),
    "stop": lambda stage: stage.service.stop(),
    "close": lambda stage: stage.service.close(),
}
AT_ONCE = ("expire", "abort", "close")
"""What ends a request without waiting for user code, for an adapter or for a thread."""


def void(_: object) -> None:
    pass


@pytest.fixture
def unlogged() -> Iterator[None]:
    """What is logged keeps its exceptions, and they what they came from."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("unlogged")
@pytest.mark.parametrize("state", STATES)
def test_whatever_happens_it_ends_once_and_nothing_is_left(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # What looks for user code in installed packages takes most of a service's start.
    monkeypatch.setattr("lmi.handler.user_code.extensions.entry_points", list)
    before, exchanges_before = held(), exchanges()
    gc.disable()
    try:
        for first, second in product(EVENTS, EVENTS):
            stage = Stage()
            try:
                check(stage, state, first, second)
            finally:
                stage.close()
                del stage.exchange, stage.submit
        assert exchanges() <= exchanges_before
    finally:
        gc.enable()
    deadline = time.monotonic() + TIMEOUT_S
    # Event loops that user code needed close on threads of their own.
    while any(now > then for now, then in zip(held(), before, strict=True)):
        assert time.monotonic() < deadline, (held(), before)
        time.sleep(0.01)


def held() -> tuple[int, int]:
    """Threads, and open files."""
    return threading.active_count(), len([*Path("/proc/self/fd").iterdir()])


def exchanges() -> int:
    """Those that there are, also if only a search for garbage would free them."""
    return sum(isinstance(one, Exchange) for one in gc.get_objects())


def check(stage: Stage, state: str, first: str, second: str) -> None:
    STATES[state](stage)
    exchange = stage.exchange
    by_our_code = state in ("running, written in our own code", "ending")
    ran: int | None = None
    for event in (first, second):
        EVENTS[event](stage)
        if event in AT_ONCE:
            assert exchange.finished or (by_our_code and event != "abort"), event
            assert not (exchange.finished and stage.engine.sinks), event
            ran = stage.further if ran is None else ran
    stage.let_go()
    records = list(exchange.records)
    # What comes later changes nothing.
    for event in ("expire", "abort", "a token", "the last token"):
        EVENTS[event](stage)
    assert list(exchange.records) == records
    metrics = stage.service.metrics
    assert sum(metrics.requests.values()) == 1
    assert metrics.in_flight == 0
    assert stage.service.admission.open == 0
    assert stage.engine.sinks == {}
    assert stage.further == (stage.further if ran is None else ran), "user code ran for a request that had ended"
    assert stage.idle


def test_one_thread_writes_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever tokens come: also while the thread that has written all there was is about to leave."""
    monkeypatch.setattr("lmi.handler.user_code.extensions.entry_points", list)
    stage = Stage()
    stage.workers = Workers(4, 50.0)
    writing, most, written = 0, 0, 0
    lock = threading.Lock()

    def act() -> None:
        nonlocal writing, most, written
        with lock:
            writing += 1
            most = max(most, writing)
        time.sleep(0.002)
        with lock:
            writing -= 1
            written += 1

    settle = Deferred._settle

    def slowly(self: Deferred) -> None:
        time.sleep(0.01)
        settle(self)

    monkeypatch.setattr(Deferred, "_settle", slowly)
    stage.running(act)
    for _ in range(100):
        stage.say(TOKEN)
        time.sleep(0.001)
    stage.let_go()
    assert most == 1
    assert len(stage.exchange.records) == written
    stage.close()


def test_one_that_was_left_to_its_thread_ends_though_what_that_closes_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmi.handler.user_code.extensions.entry_points", list)
    stage = Stage()
    closing = Gate()

    def records() -> Generator[bytes]:
        try:
            yield b"a"
            stage.gate.stand()
        finally:
            stage.workers.finish("user's closing", closing.stand)

    stage.defer(lambda: Relayed(ParsedRequest((), RelayedReply(), stream=True), records()))
    assert stage.gate.reached.wait(TIMEOUT_S)
    stage.exchange.expire(TimeLimitError("late"))
    stage.gate.open.set()
    assert closing.reached.wait(TIMEOUT_S)
    stage.workers.sweep(time.monotonic() + 100)
    assert stage.exchange.finished
    closing.open.set()
    stage.close()
