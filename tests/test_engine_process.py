"""The engine's process without an engine: in which order the backend hears of what comes in."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any, cast

from lmi.model.engine import EngineInfo
from lmi.model.engine_process import EngineProcess
from lmi.model.errors import ParameterError
from lmi.model.events import Event, Failed
from lmi.model.generation import Generation
from lmi.model.image_rules import ImageRules
from lmi.model.images import Image
from lmi.model.wire import Channel, ToEngine


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

    def close(self) -> None: ...


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
    process._start_and_end()
    process._start_and_end()
    channel.close()
    theirs.close()
    assert backend.told == [("add", 1), ("abort", 1), ("add", 2), ("abort", 2)]


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
        process._start_and_end()
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
