"""The engine's process without an engine: in which order the backend hears of what comes in."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from lmi.model.process.engine_main import EngineProcess

from ...kit.api.engine import Abort, Add, Channel, FromEngine, Release, Stats, ToEngine
from ...kit.api.errors import ParameterError
from ...kit.api.options import ImageRules
from ...kit.api.types import EngineInfo, EngineStats, Event, Failed, Generation, Image, Rendered


class Noting:
    """A Backend that notes what it is told, and can let something happen at an abort."""

    info = EngineInfo(engine="noting", version="1", context=1)
    busy = False
    refuses = False

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.at_abort: Callable[[], None] = lambda: None

    def prepare(self, number: int, generation: Generation, images: Sequence[Image] = ()) -> Any:
        del generation, images
        return number

    def tokens(self, prepared: Any) -> int:
        return int(prepared)

    def prompt_text(self, prepared: Any) -> str:
        return f"prompt {prepared}"

    def add(self, prepared: Any) -> None:
        if self.refuses:
            raise ParameterError("not this one")
        self.told.append(("add", prepared))

    def abort(self, numbers: Sequence[int]) -> None:
        self.told.append(("abort", *numbers))
        at_abort, self.at_abort = self.at_abort, lambda: None
        at_abort()

    def step(self) -> list[tuple[int, Event]]:
        return []

    def stats(self) -> EngineStats:
        return EngineStats(running=1)

    def close(self) -> None: ...


def test_what_fails_before_it_starts_is_logged_with_its_request(caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = socket.socketpair()
    channel = Channel[ToEngine](ours, ToEngine)
    process = EngineProcess(channel, Noting(), ImageRules())
    process._request_ids.add(7, "r-7")
    process._refuse(7, ValueError("broken"))
    process._refuse(8, ValueError("broken"))
    process._refuse(7, ParameterError("not for the log"))
    channel.close()
    theirs.close()
    assert caplog.messages == [
        "request r-7: generation 7 failed before it started",
        "request -: generation 8 failed before it started",
    ]


def told(channel: Channel[FromEngine], count: int) -> list[EngineStats]:
    """What the host is told, of the first so many messages."""
    messages = [channel.receive() for _ in range(count)]
    return [message.stats for message in messages if isinstance(message, Stats)]


def test_the_host_is_told_how_busy_the_engine_is_and_when_it_is_idle() -> None:
    """While there is work about once a second, and once when there is no more."""
    ours, theirs = socket.socketpair()
    channel = Channel[ToEngine](ours, ToEngine)
    process = EngineProcess(channel, Noting(), ImageRules())
    host = Channel[FromEngine](theirs, FromEngine)
    for busy in (True, True, False):
        process._send_stats(busy)
    process._stats_sent -= 10
    process._send_stats(True)
    process._stats_sent -= 10
    process._send_stats(True)
    channel.close()
    running = EngineStats(running=1)
    assert told(host, 4) == [running, EngineStats(), running, running]
    assert host.receive() is None
    host.close()


def test_an_abort_never_comes_before_what_it_ends() -> None:
    """A generation and its abort that come in while earlier aborts are carried out: it would run on for nobody."""
    ours, theirs = socket.socketpair()
    backend = Noting()
    channel = Channel[ToEngine](ours, ToEngine)
    process = EngineProcess(channel, backend, ImageRules())

    def come_in() -> None:
        process._ready(2, 2)
        process._aborts.append((2,))

    backend.at_abort = come_in
    process._ready(1, 1)
    process._aborts.append((1,))
    process._update_backend()
    process._update_backend()
    channel.close()
    theirs.close()
    assert backend.told == [("add", 1), ("abort", 1), ("add", 2), ("abort", 2)]


def test_what_is_held_back_starts_when_it_is_released_and_not_after_an_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmi.model.process.engine_main.end_with_host", lambda: None)
    ours, theirs = socket.socketpair()
    backend = Noting()
    channel = Channel[ToEngine](ours, ToEngine)
    process = EngineProcess(channel, backend, ImageRules())
    host = Channel[ToEngine](theirs, ToEngine)
    for number in (1, 2, 3, 4):
        host.send(Add(number, Generation(request_id="r", prompt="a", held=number != 3)))
    host.send(Abort((2,)))
    # The others: one that was aborted, and one that there never was.
    host.send(Release((4, 2, 9)))
    host.close()
    process._receive()
    process._update_backend()
    assert [told for told in backend.told if told[0] == "add"] == [("add", 3), ("add", 4)]
    assert list(process._events) == [(number, Rendered(f"prompt {number}")) for number in (1, 2, 4)]
    assert list(process._held) == [1]
    channel.close()


def test_tokens_in_flight_are_counted_from_start_to_end() -> None:
    """A generation of so many tokens as its number says, with 100 in flight at most."""
    ours, theirs = socket.socketpair()
    backend = Noting()
    channel = Channel[ToEngine](ours, ToEngine)
    process = EngineProcess(channel, backend, ImageRules(), 100)

    def come_in(*numbers: int) -> list[int]:
        """Which of them are started."""
        backend.told.clear()
        for number in numbers:
            process._ready(number, number)
        process._update_backend()
        return [cast(int, told[1]) for told in backend.told]

    assert come_in(60, 41, 40, 1) == [60, 40]
    refused = {number: cast(Failed, event) for number, event in process._events}
    assert {number: event.kind for number, event in refused.items()} == {41: "OverloadedError", 1: "OverloadedError"}
    # What is to end with the same round makes room for what is to start with it.
    process._aborts.append((60, 41))
    assert come_in(61, 59) == [59, 60]
    backend.refuses = True
    assert come_in(1) == []
    backend.refuses = False
    assert come_in(1) == [1]
    channel.close()
    theirs.close()
