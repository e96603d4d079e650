"""What takes too long for the event loop: on one thread, one generation after the other, with its events in order.

    event loop: start --> thread: each event of the work --> event loop: merge, with what the core's next step brings

What the core brings of such a generation meanwhile is held until its work has ended; other generations go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..errors import GenerationError, LmiError, RequestError
from ..events import EngineEvent, Failed

__all__ = ["Aside"]

log = logging.getLogger(__name__)

Held = list[tuple[int, EngineEvent]]
Made = TypeVar("Made")

SWITCH_S = 0.0005
"""Seconds after which work hands over the interpreter where the event loop waits for it, which it does several times a
step; Python's 5 ms would add up to a step's own time."""


class Aside:
    """One backend's. On the event loop, where it is made, unless a method says otherwise."""

    def __init__(self, wake: Callable[[], None], abort: Callable[[Sequence[int]], None]) -> None:
        """`wake` has `merge` called soon; `abort` ends a generation whose work has failed."""
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "lmi-aside")
        self._wake = wake
        self._abort = abort
        self._held: dict[int, Held] = {}
        """What the core has brought of each generation that has work here."""
        self._ready: list[tuple[int, EngineEvent]] = []

    @property
    def busy(self) -> bool:
        """Whether events are held, or still to come from here."""
        return bool(self._held or self._ready)

    def start(
        self, number: int, work: Iterable[EngineEvent], request_id: str, then: Callable[[], None] | None = None
    ) -> None:
        """Has the events of `work` made, each as it is asked for, and sent before what comes of the generation; `then`
        is called on the event loop when there are no more. What either raises ends the generation.
        """
        held = self._held[number] = []
        self._thread.submit(self._run, number, held, work, request_id, then)

    def make(self, number: int, make: Callable[[], Made], request_id: str, then: Callable[[Made], None]) -> None:
        """Has something made of a generation, which `then` is called with on the event loop, as `start` has it."""
        made: list[Made] = []

        def work() -> Iterator[EngineEvent]:
            made.append(make())
            yield from ()

        self.start(number, work(), request_id, lambda: then(made[0]))

    def merge(self, events: Iterable[tuple[int, EngineEvent]]) -> list[tuple[int, EngineEvent]]:
        """What may be sent now: what is ready, and those of `events` whose generations have no work here."""
        ready, self._ready = self._ready, []
        for event in events:
            self._held.get(event[0], ready).append(event)
        return ready

    def drop(self, numbers: Iterable[int]) -> None:
        """Forgets generations: nothing more comes of them. Others are ignored."""
        gone = {*numbers}
        for number in gone:
            self._held.pop(number, None)
        if self._ready:
            self._ready = [event for event in self._ready if event[0] not in gone]

    def close(self) -> None:
        """Begins no more work."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _run(
        self,
        number: int,
        held: Held,
        work: Iterable[EngineEvent],
        request_id: str,
        then: Callable[[], None] | None,
    ) -> None:
        """On the thread. By `held` it is known whether this work is still wanted, and no other of the generation."""
        failure: BaseException | None = None
        try:
            with _switching():
                for event in work:
                    if self._held.get(number) is not held:
                        return
                    self._call(self._add, number, held, event)
        except BaseException as error:  # noqa: BLE001 - becomes the generation's; libraries in Rust panic with one
            failure = error
        self._call(self._end, number, held, request_id, failure, then)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        # Where the loop is closed already, the process is about to end.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _add(self, number: int, held: Held, event: EngineEvent) -> None:
        if self._held.get(number) is held:
            self._ready.append((number, event))
            self._wake()

    def _end(
        self,
        number: int,
        held: Held,
        request_id: str,
        failure: BaseException | None,
        then: Callable[[], None] | None,
    ) -> None:
        if self._held.get(number) is not held:
            return
        del self._held[number]
        if failure is None and then is not None:
            try:
                then()
            except BaseException as error:  # noqa: BLE001 - becomes the generation's
                failure = error
        if failure is not None:
            if not isinstance(failure, RequestError):
                log.error("request %s: generation %d failed", request_id, number, exc_info=failure)
            if not isinstance(failure, LmiError):
                failure = GenerationError(f"the response could not be decoded: {failure}")
            self._abort((number,))
            held = [(number, Failed.of(failure))]
        self._ready += held
        self._wake()


@contextlib.contextmanager
def _switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
