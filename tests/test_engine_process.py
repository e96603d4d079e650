"""The engine's process without an engine: in which order the backend hears of what comes in."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any

from lmi.model.engine import EngineInfo, EngineStats
from lmi.model.engine_process import EngineProcess
from lmi.model.events import Event
from lmi.model.generation import Generation
from lmi.model.image_rules import ImageRules
from lmi.model.images import Image
from lmi.model.wire import Channel, ToEngine


class Noting:
    """A Backend that notes what it is told, and can let something happen at an abort."""

    info = EngineInfo(engine="noting", version="1", context=1)
    busy = False

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.at_abort: Callable[[], None] = lambda: None

    def prepare(self, number: int, generation: Generation, images: Sequence[Image] = ()) -> Any:
        del generation, images
        return number

    def add(self, prepared: Any) -> None:
        self.told.append(("add", prepared))

    def abort(self, numbers: Sequence[int]) -> None:
        self.told.append(("abort", *numbers))
        at_abort, self.at_abort = self.at_abort, lambda: None
        at_abort()

    def step(self) -> list[tuple[int, Event]]:
        return []

    def stats(self) -> EngineStats:
        return EngineStats()

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
