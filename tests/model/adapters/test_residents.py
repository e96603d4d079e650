"""Which adapters are loaded and which requests wait for one, without an engine: vLLM's side is a stand-in."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lmi.model.adapters.residents import Residents

from ...kit.api.engine import Adapter
from ...kit.api.errors import AdapterError, GenerationError, LmiError, NoSlotError
from ...kit.api.types import Delta, EngineEvent, EngineStats, Failed, Finish, Started
from ...kit.engines.loaders import Loader, adapter

pytestmark = pytest.mark.anyio

A, B, C, D = (adapter(name, number) for number, name in enumerate("abcd", 1))
LAST = Delta(0, "", (), Finish("eos", generated_tokens=1, cumulative_logprob=0.0))
NOT_LAST = Delta(0, "", (), Finish("eos", generated_tokens=1, cumulative_logprob=0.0, last=False))


class Bench:
    """The adapters of an engine that keeps two and pins one, unless it is told otherwise."""

    def __init__(self, most_loaded: int = 2, most_pinned: int = 1) -> None:
        self.loader = Loader(most_loaded, most_pinned)
        self.loader.in_use = lambda key: key in self.running.values()
        self.outcomes: list[tuple[str, LmiError | None]] = []
        self.residents = Residents(self.loader, lambda key, error: self.outcomes.append((key, error)))
        self.keys: dict[int, str] = {}
        """Of each generation that was asked for."""
        self.running: dict[int, str] = {}
        self.started: list[int] = []
        self.refused: dict[int, BaseException] = {}

    def enter(self, number: int, adapter: Adapter) -> None:
        self.keys[number] = adapter.key
        self.residents.enter(number, adapter.key)

    def begin(self, number: int) -> None:
        def start() -> None:
            self.started.append(number)
            self.running[number] = self.keys[number]
            if self.keys[number] not in self.loader.loaded:
                self.loader.faults.append(f"{number} is started without its adapter")

        def refuse(error: BaseException) -> None:
            self.refused[number] = error
            self.end(number)

        self.residents.begin(number, start, refuse)

    def have(self, *adapters: Adapter) -> None:
        """Registers them without loading them."""
        for one in adapters:
            self.residents.set(adapter(one.name, one.number, preload=False))
        self.outcomes.clear()

    def ask(self, number: int, adapter: Adapter) -> None:
        """A generation that names the adapter, prepared at once."""
        self.enter(number, adapter)
        self.begin(number)

    def end(self, *numbers: int) -> None:
        for number in numbers:
            self.running.pop(number, None)
        self.residents.end(numbers)

    def messages(self) -> list[tuple[str, str | None]]:
        """The outcomes, with what their errors say."""
        return [(key, None if error is None else error.message) for key, error in self.outcomes]


async def settled() -> None:
    """Once everything has been done that does not wait for a test."""
    for _ in range(100):
        await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    await settled()
    assert bench.loader.faults == []


async def test_what_is_preloaded_is_loaded_at_once_and_what_is_not_with_its_first_request(bench: Bench) -> None:
    lazy = adapter("lazy", 9, preload=False)
    bench.residents.set(A)
    bench.residents.set(lazy)
    # Nothing is done for that one, so that nothing is waited for.
    assert bench.outcomes == [(lazy.key, None)]
    await settled()
    assert bench.outcomes == [(lazy.key, None), (A.key, None)]
    assert bench.loader.told == ["load a#1"]
    bench.ask(1, A)
    assert bench.started == [1]
    bench.ask(2, lazy)
    assert bench.started == [1]
    await settled()
    assert bench.started == [1, 2]
    assert bench.loader.told == ["load a#1", "load lazy#9"]


async def test_those_of_the_start_are_loaded_before_anything_else(bench: Bench) -> None:
    bench.loader.errors[C.key] = AdapterError("broken")
    lazy = adapter("lazy", 9, preload=False)
    faults = await bench.residents.start([A, C, lazy])
    assert {key: error.message for key, error in faults.items()} == {C.key: "broken"}
    assert bench.loader.told == ["load a#1", "load c#3"]
    assert bench.outcomes == []
    # It may be tried again: its files may have come back.
    bench.loader.errors.clear()
    bench.ask(1, C)
    await settled()
    assert bench.started == [1]


async def test_more_than_fit_at_the_start_make_room_for_each_other(bench: Bench) -> None:
    assert await bench.residents.start([A, B, C]) == {}
    assert bench.loader.loaded == [B.key, C.key]


async def test_requests_wait_while_their_adapter_is_loaded_and_start_in_their_order(bench: Bench) -> None:
    bench.loader.held = asyncio.Event()
    bench.residents.set(A)
    for number in (1, 2, 3):
        bench.ask(number, A)
    await settled()
    assert (bench.started, bench.outcomes) == ([], [])
    bench.loader.held.set()
    await settled()
    assert bench.started == [1, 2, 3]
    assert bench.loader.told == ["load a#1"]


async def test_all_that_wait_for_one_that_fails_are_told_why_and_the_next_request_tries_again(bench: Bench) -> None:
    lazy = adapter("lazy", 9, preload=False)
    bench.residents.set(lazy)
    bench.loader.errors[lazy.key] = NoSlotError("no room")
    bench.loader.held = asyncio.Event()
    for number in (1, 2):
        bench.ask(number, lazy)
    bench.loader.held.set()
    await settled()
    assert bench.started == []
    assert [(type(error), str(error)) for error in bench.refused.values()] == [
        (NoSlotError, "adapter lazy could not be loaded: no room")
    ] * 2
    bench.loader.errors.clear()
    bench.ask(3, lazy)
    await settled()
    assert bench.started == [3]
    assert bench.loader.told == ["load lazy#9"] * 2


async def test_what_nobody_expected_of_the_engine_fails_as_what_was_expected(bench: Bench) -> None:
    """Else all that wait would wait for ever, and the adapter's next requests too."""
    bench.loader.errors = dict.fromkeys((A.key, B.key), RuntimeError("of the engine's"))
    bench.residents.set(A)
    assert (await bench.residents.start([B]))[B.key].message == "RuntimeError: of the engine's"
    await settled()
    assert bench.messages() == [(A.key, "RuntimeError: of the engine's")]
    bench.ask(1, B)
    await settled()
    assert str(bench.refused[1]) == "adapter b could not be loaded: RuntimeError: of the engine's"


async def test_a_registration_that_fails_leaves_nothing_behind(bench: Bench) -> None:
    bench.loader.errors[A.key] = AdapterError("broken")
    bench.loader.pin_errors[B.key] = AdapterError("cannot be pinned")
    bench.residents.set(A)
    bench.residents.set(adapter("b", 2, pin=True))
    await settled()
    assert bench.messages() == [(A.key, "broken"), (B.key, "cannot be pinned")]
    assert (bench.loader.known, bench.loader.loaded) == (set(), [])
    bench.ask(1, A)
    assert str(bench.refused[1]) == "the adapter has been unregistered"


async def test_the_least_recently_named_one_makes_room(bench: Bench) -> None:
    await bench.residents.start([A, B])
    bench.ask(1, B)
    bench.ask(2, A)
    bench.end(1, 2)
    bench.residents.set(C)
    await settled()
    assert sorted(bench.loader.loaded) == [A.key, C.key]
    assert bench.loader.told[2:] == ["unload b#2", "load c#3"]


async def test_one_whose_request_is_being_prepared_makes_room_last_and_is_loaded_again(bench: Bench) -> None:
    await bench.residents.start([A, B])
    bench.have(C, D)
    bench.ask(1, B)
    bench.end(1)
    bench.enter(2, A)
    bench.end(2)
    bench.enter(3, B)
    # A is the one that was named last but one.
    bench.enter(4, A)
    bench.end(4)
    bench.ask(5, C)
    await settled()
    assert bench.loader.loaded == [B.key, C.key]
    bench.ask(6, D)
    await settled()
    assert bench.loader.loaded == [C.key, D.key]
    bench.end(5)
    bench.begin(3)
    await settled()
    assert bench.started == [1, 5, 6, 3]


async def test_one_that_cannot_be_unloaded_holds_up_nothing(bench: Bench) -> None:
    await bench.residents.start([A, B])
    bench.have(C)
    bench.loader.unload_errors = dict.fromkeys((A.key, B.key), RuntimeError("of the engine's"))
    bench.ask(1, C)
    await settled()
    assert bench.started == [1]
    bench.residents.remove(B.key)
    await settled()
    assert bench.loader.known == {A.key, C.key}


async def test_one_in_use_never_makes_room_and_what_needs_it_waits_until_a_request_ends(bench: Bench) -> None:
    await bench.residents.start([A, B])
    bench.have(C)
    bench.ask(1, A)
    bench.ask(2, B)
    bench.ask(3, A)
    bench.ask(4, C)
    await settled()
    assert bench.started == [1, 2, 3]
    bench.end(1)
    await settled()
    assert bench.started == [1, 2, 3]
    bench.end(3)
    await settled()
    assert bench.started == [1, 2, 3, 4]
    assert sorted(bench.loader.loaded) == [B.key, C.key]


async def test_that_there_is_no_room_is_said_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    await bench.residents.start([A, B])
    bench.have(C)
    for number in range(10):
        bench.ask(number, A if number % 2 else B)
    bench.ask(10, C)
    for number in range(9):
        bench.end(number)
        await settled()
    assert len(caplog.messages) == 1


async def test_two_that_need_room_get_it_one_after_the_other(bench: Bench) -> None:
    await bench.residents.start([A, B])
    bench.have(C, D)
    bench.ask(1, A)
    bench.ask(2, B)
    bench.ask(3, C)
    bench.ask(4, D)
    await settled()
    bench.end(2)
    await settled()
    assert bench.started == [1, 2, 3]
    bench.end(1)
    await settled()
    assert bench.started == [1, 2, 3, 4]
    assert bench.loader.loaded == [C.key, D.key]


async def test_a_pinned_one_never_makes_room(bench: Bench) -> None:
    await bench.residents.start([adapter("a", 1, pin=True), B])
    bench.have(C, D)
    bench.ask(1, B)
    bench.end(1)
    for number, other in enumerate((C, D, B), 2):
        bench.ask(number, other)
        await settled()
        bench.end(number)
    assert bench.started == [1, 2, 3, 4]
    assert bench.loader.loaded == [A.key, B.key]


async def test_no_more_are_pinned_than_may_be(bench: Bench) -> None:
    bench.residents.set(adapter("a", 1, pin=True))
    bench.residents.set(B)
    bench.residents.set(adapter("b", 2, pin=True))
    await settled()
    (first, second, third) = bench.outcomes
    assert first == (A.key, None)
    assert second == (B.key, None)
    assert third[0] == B.key
    assert isinstance(third[1], NoSlotError)
    assert third[1].message == (
        "1 adapters are pinned, expected at most 1 (option.max_loras, option.max_cpu_loras): a slot has to stay free"
    )
    # It stays as it was before.
    bench.ask(1, B)
    assert bench.started == [1]
    # One that is pinned already may be again; and one that goes leaves its pin.
    bench.residents.set(adapter("a", 1, pin=True))
    await settled()
    assert bench.outcomes[3:] == [(A.key, None)]
    bench.residents.remove(A.key)
    await settled()
    bench.residents.set(adapter("b", 2, pin=True))
    await settled()
    assert bench.outcomes[4:] == [(B.key, None)]
    assert bench.loader.pinned == {B.key}


async def test_one_that_is_pinned_later_is_not_loaded_again(bench: Bench) -> None:
    bench.residents.set(A)
    bench.residents.set(adapter("a", 1, pin=True))
    await settled()
    assert bench.loader.told == ["load a#1", "pin a#1"]
    assert bench.outcomes == [(A.key, None)] * 2


async def test_one_that_is_removed_goes_with_its_last_request(bench: Bench) -> None:
    await bench.residents.start([A])
    bench.ask(1, A)
    # Not prepared yet, but it was sent before.
    bench.enter(2, A)
    bench.residents.remove(A.key)
    await settled()
    assert bench.loader.loaded == [A.key]
    bench.end(1)
    await settled()
    assert bench.loader.loaded == [A.key]
    bench.begin(2)
    assert bench.started == [1, 2]
    bench.end(2)
    await settled()
    assert (bench.loader.loaded, bench.loader.known) == ([], set())


async def test_one_without_requests_goes_at_once(bench: Bench) -> None:
    await bench.residents.start([A])
    bench.residents.remove(A.key)
    bench.residents.remove(A.key)
    bench.residents.remove("of which nobody knows")
    await settled()
    assert bench.loader.told == ["load a#1", "unload a#1"]
    assert bench.loader.known == set()


async def test_a_request_for_one_that_has_been_removed_is_refused(bench: Bench) -> None:
    await bench.residents.start([A])
    bench.residents.remove(A.key)
    bench.ask(1, A)
    assert (bench.started, str(bench.refused[1])) == ([], "the adapter has been unregistered")
    bench.end(1)


@pytest.mark.parametrize("asked", [False, True])
async def test_one_that_is_removed_while_it_is_loaded_is_unloaded(bench: Bench, asked: bool) -> None:
    """What was asked of it before still gets it."""
    bench.loader.held = asyncio.Event()
    bench.residents.set(A)
    if asked:
        bench.ask(1, A)
    await settled()
    bench.residents.remove(A.key)
    await settled()
    # It is not to be forgotten while it is being loaded.
    assert bench.loader.known == {A.key}
    bench.loader.held.set()
    await settled()
    assert bench.started == ([1] if asked else [])
    assert bench.outcomes == [(A.key, None)]
    bench.end(1)
    await settled()
    assert bench.loader.told == ["load a#1", "unload a#1"]
    assert bench.loader.known == set()


@pytest.mark.parametrize("asked", [False, True])
async def test_one_that_is_removed_before_its_turn_is_loaded_for_requests_only(bench: Bench, asked: bool) -> None:
    bench.loader.held = asyncio.Event()
    bench.residents.set(B)
    bench.residents.set(A)
    if asked:
        bench.ask(1, A)
    await settled()
    bench.residents.remove(A.key)
    await settled()
    bench.loader.held.set()
    await settled()
    if asked:
        assert bench.started == [1]
        assert bench.messages() == [(B.key, None), (A.key, None)]
        bench.end(1)
    else:
        assert bench.loader.told == ["load b#2"]
        assert bench.messages() == [(B.key, None), (A.key, "the adapter has been unregistered")]
    await settled()
    assert (bench.loader.loaded, bench.loader.known) == ([B.key], {B.key})


async def test_one_that_is_removed_while_another_waits_for_room_makes_it(bench: Bench) -> None:
    """Even a pinned one."""
    await bench.residents.start([adapter("a", 1, pin=True), B])
    bench.have(C)
    bench.ask(1, B)
    bench.ask(2, C)
    await settled()
    assert bench.started == [1]
    bench.residents.remove(A.key)
    await settled()
    assert bench.started == [1, 2]
    assert bench.loader.told[-2:] == ["unload a#1", "load c#3"]


async def test_new_weights_under_an_old_name_are_another_adapter(bench: Bench) -> None:
    await bench.residents.start([A])
    bench.ask(1, A)
    anew = adapter("a", 5)
    bench.residents.remove(A.key)
    bench.residents.set(anew)
    bench.ask(2, anew)
    await settled()
    assert bench.started == [1, 2]
    assert bench.loader.loaded == [A.key, anew.key]
    bench.end(1)
    await settled()
    assert bench.loader.loaded == [anew.key]


async def test_a_request_that_ends_while_it_waits_is_not_started(bench: Bench) -> None:
    bench.loader.held = asyncio.Event()
    lazy = adapter("lazy", 9, preload=False)
    bench.residents.set(lazy)
    bench.ask(1, lazy)
    bench.ask(2, lazy)
    await settled()
    bench.end(1)
    bench.loader.held.set()
    await settled()
    assert bench.started == [2]
    # Whether it was one of these it does not say: they may never have named an adapter.
    bench.end(1, 77)
    assert not bench.residents.uses_adapter(1)
    assert bench.residents.uses_adapter(2)


async def test_what_ends_in_the_engine_is_ended(bench: Bench) -> None:
    await bench.residents.start([A])
    for number in (1, 2, 3, 4):
        bench.ask(number, A)
    bench.running.clear()
    events: list[tuple[int, EngineEvent]] = [
        (1, LAST),
        (2, Failed.of(GenerationError("of the engine's"))),
        (3, NOT_LAST),
        (4, Started(1)),
        (99, LAST),
    ]
    bench.residents.release_ended(events)
    assert [bench.residents.uses_adapter(number) for number in (1, 2, 3, 4)] == [False, False, True, True]
    bench.residents.remove(A.key)
    bench.residents.release_ended([(3, LAST)])
    await settled()
    assert bench.loader.loaded == [A.key]
    bench.residents.release_ended([(4, LAST)])
    await settled()
    assert bench.loader.loaded == []


async def test_one_gets_its_turn_however_busy_the_others_are(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of A and B overlap without end, so that neither is ever idle."""
    monkeypatch.setattr("lmi.model.adapters.residents.PATIENCE_S", 0.05)
    await bench.residents.start([A, B])
    bench.have(C)
    bench.ask(1, A)
    bench.ask(2, B)
    bench.ask(1000, C)
    began = time.monotonic()
    for number in itertools.count(1003):
        bench.ask(number, A if number % 2 else B)
        bench.end(number - 2 if number > 1004 else number - 1002)
        await asyncio.sleep(0.001)
        if 1000 in bench.started:
            break
        assert time.monotonic() < began + 30
    # Not at once: who is in use need not stop for every one that comes.
    assert time.monotonic() >= began + 0.05
    bench.end(1000)
    for _ in range(2):
        # Those that had to wait for it come next.
        bench.end(*bench.running)
        await settled()
    assert set(bench.started) == bench.keys.keys()
    # From then on nobody has to make room.
    for number, one in ((-1, A), (-2, B)):
        bench.ask(number, one)
        assert number in bench.started


@pytest.mark.parametrize("seed", range(40))
async def test_whatever_comes_in_whatever_order(seed: int) -> None:
    """Each generation that was begun is started or refused exactly once; what the engine is told it can do."""
    draw = random.Random(seed)
    most = draw.randint(1, 3)
    bench = Bench(most, draw.randint(0, most - 1))
    bench.loader.pause = lambda: draw.choice([0, 0, 1, 5])
    known: dict[str, Adapter] = {}
    registered: set[str] = set()
    asked: set[int] = set()
    unprepared: list[int] = []
    ended: set[int] = set()
    numbers = iter(range(1, 10**6))

    def one_more(**how: Any) -> None:
        made = adapter(draw.choice("abcdef"), next(numbers), **how)
        known[made.key] = made
        if draw.random() < 0.1:
            bench.loader.errors[made.key] = draw.choice([AdapterError("broken"), RuntimeError("broken")])
        bench.residents.set(made)

    def end(number: int) -> None:
        ended.add(number)
        if number in unprepared:
            unprepared.remove(number)
        bench.end(number)

    for _ in range(400):
        match draw.choices(["ask", "begin", "end", "set", "pin", "remove", "wait"], [8, 8, 7, 3, 1, 2, 8])[0]:
            case "ask" if known:
                number = next(numbers)
                bench.enter(number, draw.choice(list(known.values())))
                asked.add(number)
                unprepared.append(number)
            case "begin" if unprepared:
                bench.begin(unprepared.pop(draw.randrange(len(unprepared))))
            case "end" if left := sorted(asked - ended):
                end(draw.choice(left))
            case "set":
                one_more(preload=draw.random() < 0.5, pin=draw.random() < 0.2)
            case "pin" if known:
                one = known[draw.choice(sorted(known))]
                bench.residents.set(adapter(one.name, one.number, pin=True))
            case "remove" if known:
                bench.residents.remove(known.pop(draw.choice(sorted(known))).key)
            case _:
                for _ in range(draw.randint(1, 10)):
                    await asyncio.sleep(0)
        for key, error in bench.outcomes:
            if error is not None and key not in registered:
                # Its number is never used again.
                known.pop(key, None)
            registered.add(key)
        bench.outcomes.clear()
        assert len(bench.loader.loaded) <= most
    for number in list(unprepared):
        bench.begin(number)
        unprepared.remove(number)
    for _ in range(len(asked)):
        await settled()
        for number in list(bench.running):
            end(number)
    assert bench.loader.faults == []
    assert len(bench.started) == len(set(bench.started))
    assert not set(bench.started) & bench.refused.keys()
    assert asked - ended <= set(bench.started) | bench.refused.keys()
    for key in list(known):
        bench.residents.remove(key)
    await settled()
    # What could not be registered the host does not remove, nor does it have to.
    assert (bench.loader.known, bench.loader.loaded) == (set(), [])
    assert not any(map(bench.residents.uses_adapter, asked))


async def test_what_is_told_of_them(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    bench = Bench(most_loaded=3)
    bench.have(A, B, C, D)
    busy = EngineStats(running=2)
    assert bench.residents.with_figures(busy) == busy
    for number, one in enumerate((A, B, C, D, D)):
        bench.ask(number, one)
        await settled()
    # Three are loaded and in use, of which a batch mixes two; the fourth waits for one of them.
    assert bench.residents.with_figures(busy) == EngineStats(running=2, waiting_for_adapter=2, adapter_loads=3)
    bench.residents.with_figures(busy)
    said = "requests of 3 adapters run, a batch mixes 2 (option.max_loras): some wait"
    assert [record.message for record in caplog.records if "a batch mixes" in record.message] == [said]
    bench.end(0)
    await settled()
    assert bench.residents.with_figures(EngineStats()) == EngineStats(waiting_for_adapter=0, adapter_loads=4)
    bench.end(1, 2, 3, 4)
    await settled()
    bench.residents.with_figures(EngineStats())
    for number, one in enumerate((A, B, C), 10):
        bench.ask(number, one)
        await settled()
    bench.residents.with_figures(busy)
    assert [record.message for record in caplog.records if "a batch mixes" in record.message] == [said, said]


async def test_a_loader_that_does_not_say_how_many_a_batch_mixes() -> None:
    """One of a user's engine, from before there was `slots`."""
    bench = Bench()
    del bench.loader.slots
    bench.have(A, B)
    bench.ask(0, A)
    bench.ask(1, B)
    await settled()
    assert bench.residents.with_figures(EngineStats()) == EngineStats(waiting_for_adapter=0, adapter_loads=2)
