"""Rolling batch without DJL: what a call hands over, and when it returns. (tests/hosts/test_lmi.py has it behind
DJL.)"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from lmi.handler.djl.modes import rolling_batch as rolling
from lmi.handler.djl.modes.rolling_batch import RollingBatch

from ....kit.api.handler import NO_FRAME as NOTHING
from ....kit.api.handler import Frame, started_service
from ....kit.api.types import Delta, Finish, Request, Started, Token
from ....kit.user_code.engine import ScriptedEngine
from ....kit.waiting import until

STREAM = Request(b'{"inputs": "Hi", "stream": true}')


def batch_of(poll_timeout: float = 0.0, **options: str) -> tuple[ScriptedEngine, RollingBatch]:
    engine = ScriptedEngine()
    service = started_service(engine, **options)
    return engine, RollingBatch(service, poll_timeout)


def token(text: str, *, last: bool = False) -> Delta:
    return Delta(0, text, (Token(7, text, -0.5),), Finish("length", None, 1, -0.5) if last else None)


def texts(frame: Frame) -> list[str]:
    return [line.split('"text":"')[1][0] for line in frame.data.decode().splitlines()]


def meanwhile(engine: ScriptedEngine, requests: int, *steps: Callable[[], None]) -> threading.Thread:
    """Steps of the engine, on a thread of its own, while the call waits that brings it so many requests in all."""

    def run() -> None:
        until(lambda: len(engine.generations) >= requests)
        for step in steps:
            time.sleep(0.05)
            step()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_call_hands_over_one_record_of_each_request() -> None:
    engine, batch = batch_of()
    assert batch.step([STREAM, STREAM]) == [NOTHING, NOTHING]
    for ticket in (0, 1):
        engine.say(ticket, Started(3), token("a"), token("b"))
    for expected in ("a", "b"):
        assert [texts(frame) for frame in batch.step([None, None])] == [[expected]] * 2
    assert batch.step([None, None]) == [NOTHING, NOTHING]


def test_a_stream_ends_in_a_call_of_its_own() -> None:
    """See frame_of_exchange: Java's reader may miss what comes with the word that it was the last."""
    engine, batch = batch_of()
    batch.step([STREAM])
    engine.say(0, Started(3), token("a"))
    engine.say(0, token("b", last=True))
    frames = [frame for _ in range(3) for frame in batch.step([None])]
    assert [(len(frame.data) > 0, frame.last) for frame in frames] == [(True, False), (True, False), (False, True)]
    assert batch.step([]) == []


def test_a_call_waits_for_news_and_no_longer() -> None:
    """Nor at all while there is some, though others are silent."""
    engine, batch = batch_of(poll_timeout=30.0)
    began = time.monotonic()
    thread = meanwhile(engine, 3, lambda: engine.say(1, Started(3), token("a"), token("b")))
    assert [texts(frame) for frame in batch.step([STREAM] * 3)] == [[], ["a"], []]
    assert [texts(frame) for frame in batch.step([None] * 3)] == [[], ["b"], []]
    assert time.monotonic() - began < 25
    thread.join()


def test_an_open_request_that_is_silent_does_not_make_java_spin() -> None:
    """Java calls again as soon as a call has returned (RollingBatch.run)."""
    engine = ScriptedEngine()
    service = started_service(engine)
    batch = RollingBatch(service)
    batch.step([STREAM])
    window, calls = 0.2, 0
    deadline = time.monotonic() + window
    while time.monotonic() < deadline:
        assert batch.step([None]) == [NOTHING]
        calls += 1
    # Fewer on a slow machine. Without a wait there are tens of thousands.
    assert calls <= window / 0.002


@pytest.fixture
def slow_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """As though Java was away for long each time."""
    monkeypatch.setattr(rolling, "PACE_FACTOR", 1e9)
    monkeypatch.setattr(rolling, "MAX_PACE_S", 30.0)


def test_a_call_without_news_waits_for_longer_where_calls_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "PACE_FACTOR", 1e9)
    _, batch = batch_of(poll_timeout=0.1)
    batch.step([STREAM])
    began = time.monotonic()
    assert batch.step([None]) == [NOTHING]
    assert 0.2 <= time.monotonic() - began < 25


def test_a_call_without_news_waits_no_longer_where_calls_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "PATIENCE", 1e9)
    _, batch = batch_of(poll_timeout=0.001)
    began = time.monotonic()
    batch.step([STREAM])
    assert batch.step([None]) == [NOTHING]
    assert time.monotonic() - began < 25


@pytest.mark.usefixtures("slow_java")
def test_a_call_waits_no_longer_for_news_where_somebody_may_be_about_to_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """As somebody has just joined or ended (RollingBatch.run); nor where news has come."""
    monkeypatch.setattr(rolling, "PATIENCE", 1e9)
    engine, batch = batch_of(poll_timeout=0.001)
    began = time.monotonic()
    assert batch.step([STREAM, STREAM]) == [NOTHING, NOTHING]
    thread = meanwhile(engine, 2, lambda: engine.say(0, Started(3), token("a", last=True)))
    assert [(texts(frame), frame.last) for frame in batch.step([None, None])] == [(["a"], True), ([], False)]
    assert batch.step([None]) == [NOTHING]
    thread.join()
    assert time.monotonic() - began < 25


@pytest.mark.usefixtures("slow_java")
def test_merged_records_gather_until_somebody_waits_for_a_first_one() -> None:
    engine, batch = batch_of(merge_records="true")
    batch.step([STREAM])
    engine.say(0, Started(3), token("a"))
    assert [texts(frame) for frame in batch.step([None])] == [["a"]], "nothing had begun"
    engine.say(0, token("b"))
    began = time.monotonic()
    thread = meanwhile(engine, 2, lambda: engine.say(0, token("c")), lambda: engine.say(1, Started(3), token("x")))
    frames = batch.step([None, STREAM])
    assert [texts(frame) for frame in frames] == [["b", "c"], ["x"]]
    assert time.monotonic() - began < 25
    thread.join()


def test_merged_records_gather_for_some_milliseconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rolling, "PACE_FACTOR", 1e9)
    monkeypatch.setattr(rolling, "MAX_PACE_S", 0.2)
    engine, batch = batch_of(merge_records="true")
    batch.step([STREAM])
    engine.say(0, Started(3), token("a"))
    batch.step([None])
    engine.say(0, token("b"))
    began = time.monotonic()
    assert [texts(frame) for frame in batch.step([None])] == [["b"]]
    assert time.monotonic() - began >= 0.2


@pytest.mark.usefixtures("slow_java")
def test_records_of_their_own_are_never_held_back() -> None:
    engine, batch = batch_of()
    batch.step([STREAM])
    for text in "abc":
        engine.say(0, token(text))
        began = time.monotonic()
        assert [texts(frame) for frame in batch.step([None])] == [[text]]
        assert time.monotonic() - began < 25
