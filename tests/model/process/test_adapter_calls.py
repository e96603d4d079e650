"""What an engine is told of adapters, and what a rebuilt one begins with: without an engine."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from lmi.model.process.adapter_calls import AdapterCalls

from ...kit.api.engine import (
    Adapter,
    AdapterOutcome,
    Channel,
    EngineChild,
    EngineClient,
    Fault,
    FromEngine,
    Ready,
    RemoveAdapter,
    SetAdapter,
    ToEngine,
)
from ...kit.api.errors import AdapterError, NoSlotError, UnavailableError
from ...kit.api.options import typed_settings
from ...kit.api.types import EngineInfo, EngineStats, Settings
from ...kit.engines.loaders import adapter

A, B, C = (adapter(name, number) for number, name in enumerate("abc", 1))


class Posted:
    """The channel to an engine that is up, or to one that has just ended."""

    def __init__(self) -> None:
        self.messages: list[object] = []
        self.gone = False

    def post(self, message: object) -> None:
        if self.gone:
            raise BrokenPipeError
        self.messages.append(message)


class Engine:
    """What AdapterCalls sees of a client."""

    def __init__(self) -> None:
        self.channel: Posted | None = Posted()
        self.started = True
        find: Callable[[], Any] = lambda: self.channel  # noqa: E731
        self.calls = AdapterCalls(find, lambda: self.started)

    @property
    def told(self) -> list[object]:
        return self.channel.messages if self.channel else []


def error_of(future: Future[None]) -> str:
    """What a call has come to, which must have come to something: nothing, or an error's text."""
    error = future.exception(timeout=0)
    return "" if error is None else f"{type(error).__name__}: {error}"


def test_before_the_engine_starts_a_registration_waits_for_that() -> None:
    engine = Engine()
    engine.started = False
    assert error_of(engine.calls.add(A)) == ""
    assert error_of(engine.calls.add(B)) == ""
    engine.calls.remove(B.key)
    assert engine.calls.for_start() == (A,)


def test_the_engine_says_what_became_of_a_registration() -> None:
    engine = Engine()
    good, full = engine.calls.add(A), engine.calls.add(B)
    assert engine.told == [SetAdapter(A), SetAdapter(B)]
    assert not good.done()
    assert not full.done()
    engine.calls.settle(AdapterOutcome(B.key, Fault.of(NoSlotError("no room", "pin"))))
    engine.calls.settle(AdapterOutcome(A.key))
    assert error_of(good) == ""
    assert error_of(full) == "NoSlotError: no room"
    assert full.exception().param == "pin"  # type: ignore[union-attr]
    assert engine.calls.for_start() == (A,)


def test_an_outcome_that_nobody_waits_for_is_ignored() -> None:
    engine = Engine()
    engine.calls.settle(AdapterOutcome(A.key))
    assert engine.calls.for_start() == ()


def test_an_engine_begins_with_what_the_last_one_had() -> None:
    """One that was pinned later, pinned; where that failed, as it was."""
    engine = Engine()
    for one in (A, B):
        engine.calls.add(one)
        engine.calls.settle(AdapterOutcome(one.key))
    pinned = [adapter("a", 1, pin=True), adapter("b", 2, pin=True)]
    for one in pinned:
        engine.calls.add(one)
    engine.calls.settle(AdapterOutcome(A.key))
    engine.calls.settle(AdapterOutcome(B.key, Fault.of(NoSlotError("no room"))))
    assert engine.calls.for_start() == (pinned[0], B)


@pytest.mark.parametrize("gone", [False, True])
def test_without_an_engine_a_registration_fails_and_a_removal_does_not(gone: bool) -> None:
    engine = Engine()
    engine.calls.add(A)
    engine.calls.settle(AdapterOutcome(A.key))
    if gone:
        engine.channel.gone = True  # type: ignore[union-attr]
    else:
        engine.channel = None
    assert error_of(engine.calls.add(B)) == "UnavailableError: the engine is being rebuilt, try again later"
    engine.calls.remove(A.key)
    assert engine.calls.for_start() == ()


def test_what_a_dead_engine_was_asked_is_answered_and_not_kept() -> None:
    engine = Engine()
    futures = [engine.calls.add(A), engine.calls.add(B)]
    engine.calls.fail("it was killed")
    assert [error_of(future) for future in futures] == ["UnavailableError: it was killed"] * 2
    assert engine.calls.for_start() == ()
    # What comes of it after all comes too late.
    engine.calls.settle(AdapterOutcome(A.key))
    assert engine.calls.for_start() == ()


def test_one_that_is_removed_while_the_engine_loads_it_is_not_kept() -> None:
    engine = Engine()
    future = engine.calls.add(A)
    engine.calls.remove(A.key)
    assert engine.told == [SetAdapter(A), RemoveAdapter(A.key)]
    engine.calls.settle(AdapterOutcome(A.key))
    assert error_of(future) == ""
    assert engine.calls.for_start() == ()


def test_what_was_removed_while_an_engine_was_started_it_is_told_when_it_is_up() -> None:
    engine = Engine()
    for one in (A, B):
        engine.calls.add(one)
        engine.calls.settle(AdapterOutcome(one.key))
    channel, engine.channel = engine.channel, None
    assert engine.calls.for_start() == (A, B)
    engine.calls.remove(A.key)
    engine.channel = channel
    engine.told.clear()
    engine.calls.ready({})
    assert engine.told == [RemoveAdapter(A.key)]


def test_what_an_engine_could_not_load_at_its_start_is_known_until_it_is_removed() -> None:
    engine = Engine()
    engine.calls.ready({A.key: Fault.of(NoSlotError("no room")), B.key: Fault.of(AdapterError("broken"))})
    assert {key: repr(error) for key, error in engine.calls.faults.items()} == {
        A.key: repr(NoSlotError("no room")),
        B.key: repr(AdapterError("broken")),
    }
    engine.calls.remove(A.key)
    assert engine.calls.faults.keys() == {B.key}
    engine.calls.ready({})
    assert engine.calls.faults == {}


class Child(EngineChild):
    """The link to an engine's process that says what the test lets it say."""

    made: list[Child]

    def __init__(self, settings: Settings, adapters: tuple[Adapter, ...] = (), output: int | None = None) -> None:
        del settings
        ours, theirs = socket.socketpair()
        self.channel: Channel[FromEngine] = Channel(ours, FromEngine)
        self.theirs: Channel[ToEngine] = Channel(theirs, ToEngine)
        self.adapters = adapters
        self.sinks = {}
        self.cause = None
        self.served = False
        self.stats = EngineStats()
        self.messages_received = 0
        self.gone = threading.Event()
        self.made.append(self)

    def come_up(self, **faults: Fault) -> None:
        self.theirs.post(Ready(EngineInfo(engine="none", version="0", context=1), faults))

    def die(self) -> None:
        self.cause = UnavailableError("it was killed")
        self.theirs.close()

    def end(self) -> None:
        self.channel.close()
        self.theirs.close()


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Child]]:
    """Those that a client has started."""
    monkeypatch.setattr("lmi.model.process.client.EngineChild", Child)
    monkeypatch.setattr(Child, "made", [], raising=False)
    yield Child.made
    for child in Child.made:
        child.end()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_rebuilt_engine_has_the_adapters_again(children: list[Child]) -> None:
    client = EngineClient(typed_settings(), pauses=(0.0,))
    client.adapters.add(A)
    client.launch()
    (first,) = children
    assert first.adapters == (A,)
    first.come_up(**{A.key: Fault.of(AdapterError("broken"))})
    client.start()
    assert client.adapters.faults[A.key].message == "broken"
    try:
        settled, pending = client.adapters.add(B), client.adapters.add(C)
        assert [first.theirs.receive() for _ in range(2)] == [SetAdapter(B), SetAdapter(C)]
        first.theirs.post(AdapterOutcome(B.key))
        assert settled.result(30) is None
        assert not pending.done()
        first.die()
        with pytest.raises(UnavailableError, match="it was killed"):
            pending.result(30)
        until(lambda: len(children) == 2)
        assert children[1].adapters == (A, B)
        with pytest.raises(UnavailableError, match="being rebuilt"):
            client.adapters.add(C).result(0)
        # Neither knows of it yet: this one was told to begin with it.
        client.adapters.remove(A.key)
        children[1].come_up()
        until(lambda: client.healthy)
        assert children[1].theirs.receive() == RemoveAdapter(A.key)
        until(lambda: client.adapters.faults == {})
    finally:
        client.close()
