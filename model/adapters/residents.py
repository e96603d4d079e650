"""Which adapters are loaded in the engine, and which requests wait for one: on the event loop of the engine's process.

    set --preload--> load --> outcome                      remove --its last request has ended--> unload
    enter (a request has come), begin (it is prepared) --loaded--> start;  --else--> load, then start

No more are loaded than the engine keeps, so that it never drops one by itself: vLLM would read that one's files again
within a step, where a fault ends the engine with all that runs on it. What makes room is the one that has not been used
for the longest time, without requests and not pinned. Where there is none, loading waits until a request ends; and
after PATIENCE_S the least recently used one gets no new ones before: it would wait for ever where all are busy.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec

from ..engine import EngineStats
from ..errors import AdapterError, LmiError, NoSlotError
from ..events import Delta, EngineEvent, Failed
from .adapter import Adapter, AdapterLoader, name_of_key

__all__ = ["Residents"]

log = logging.getLogger(__name__)

Outcome = Callable[[str, LmiError | None], None]

PATIENCE_S = 1.0
"""Seconds that one which needs room waits for another to be idle by itself."""


@dataclass(slots=True, eq=False)
class _Resident:
    adapter: Adapter
    pinned: bool = False
    removed: bool = False
    """Whether it is to be unloaded with its last request."""
    used: int = 0
    """When a request last named it, as a count."""
    numbers: set[int] = field(default_factory=set[int])
    """The generations that use it, prepared or not."""
    running: set[int] = field(default_factory=set[int])
    """Those of them that have been started."""
    waiting: dict[int, tuple[Callable[[], None], Callable[[BaseException], None]]] = field(
        default_factory=dict[int, tuple[Callable[[], None], Callable[[BaseException], None]]]
    )
    """Those that are prepared and wait until it is loaded: what starts and what refuses each."""
    loading: asyncio.Task[None] | None = None

    @property
    def gone(self) -> bool:
        """Whether nothing needs it any more."""
        return self.removed and not self.numbers


class Residents:
    """The adapters of one engine."""

    def __init__(self, loader: AdapterLoader, tell: Outcome) -> None:
        """`tell(key, error)` is called with the outcome of each `set`."""
        self._loader = loader
        self._slots: int = getattr(loader, "slots", loader.most_loaded)
        self._tell = tell
        self._known: dict[str, _Resident] = {}
        self._loaded: dict[_Resident, None] = {}
        """Those that the engine has, some of which may be removed already."""
        self._of: dict[int, _Resident | None] = {}
        """Of each generation that names one; None: it had been removed before."""
        self._clock = count(1)
        self._turn = asyncio.Lock()
        """One is loaded at a time: room that one has made is not another's."""
        self._room = asyncio.Event()
        self._yielding: _Resident | None = None
        """The one that starts nothing new until it has made room."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._loads = 0
        self._crowded = False
        """Whether it has been said that the requests under way are of more adapters than one batch may mix."""

    async def start(self, adapters: Iterable[Adapter]) -> dict[str, LmiError]:
        """Takes in those that are there at the engine's start; by key, what kept one from being loaded."""
        faults: dict[str, LmiError] = {}
        for adapter in adapters:
            resident = self._take_in(adapter)
            if adapter.preload or adapter.pin:
                try:
                    await self._load(resident, pin=adapter.pin)
                except LmiError as error:
                    faults[adapter.key] = error
        return faults

    def set(self, adapter: Adapter) -> None:
        """Registers one, or lets one that is registered be pinned; tells the outcome."""
        known = self._known.get(adapter.key)
        resident = known or self._take_in(adapter)
        if adapter.preload or adapter.pin:
            self._run(self._set(resident, pin=adapter.pin, new=known is None))
        else:
            self._tell(adapter.key, None)

    def remove(self, key: str) -> None:
        """Unloads it once its requests have ended. Their engine has had them before: none comes after this."""
        if (resident := self._known.pop(key, None)) is not None:
            resident.removed = True
            self._drop_if_gone(resident)

    def enter(self, number: int, key: str) -> None:
        """A generation that names it has come; it is counted until `end`."""
        resident = self._of[number] = self._known.get(key)
        if resident is not None:
            resident.numbers.add(number)
            resident.used = next(self._clock)

    def uses_adapter(self, number: int) -> bool:
        """Whether a generation has been entered."""
        return number in self._of

    def begin(self, number: int, start: Callable[[], None], refuse: Callable[[BaseException], None]) -> None:
        """Starts a generation that has been entered, at once or when its adapter is loaded; or refuses it."""
        resident = self._of[number]
        if resident is None:
            # vLLM would read its files within a step.
            refuse(AdapterError("the adapter has been unregistered", "adapters"))
        elif resident in self._loaded and resident.loading is None and resident is not self._yielding:
            resident.running.add(number)
            start()
        else:
            resident.waiting[number] = start, refuse
            if resident.loading is None:
                resident.loading = self._run(self._load_for_requests(resident))

    def end(self, numbers: Iterable[int]) -> None:
        """Generations have ended; those without an adapter are ignored."""
        for number in numbers:
            if (resident := self._of.pop(number, None)) is not None:
                resident.numbers.discard(number)
                resident.running.discard(number)
                resident.waiting.pop(number, None)
                self._drop_if_gone(resident)
                self._room.set()

    def release_ended(self, events: Iterable[tuple[int, EngineEvent]]) -> None:
        """The same for what ends with one of the events."""
        if self._of:
            for number, event in events:
                if (type(event) is Delta and event.finish is not None and event.finish.last) or type(event) is Failed:
                    self.end((number,))

    def with_figures(self, stats: EngineStats) -> EngineStats:
        """The same, with what is known here; to be called about once a second."""
        in_use = sum(bool(one.running) for one in self._loaded)
        crowded = in_use > self._slots
        if crowded and not self._crowded:
            log.info("requests of %d adapters run, a batch mixes %d (option.max_loras): some wait", in_use, self._slots)
        self._crowded = crowded
        waiting = sum(len(one.waiting) for one in {one for one in self._of.values() if one is not None})
        return msgspec.structs.replace(stats, waiting_for_adapter=waiting, adapter_loads=self._loads)

    def _take_in(self, adapter: Adapter) -> _Resident:
        resident = self._known[adapter.key] = _Resident(adapter, used=next(self._clock))
        self._loader.know(adapter)
        return resident

    async def _set(self, resident: _Resident, *, pin: bool, new: bool) -> None:
        try:
            await self._load(resident, pin=pin)
        except LmiError as error:
            if new:
                # It is not registered: the host will not remove it.
                self.remove(resident.adapter.key)
            self._tell(resident.adapter.key, error)
        else:
            self._tell(resident.adapter.key, None)

    async def _load_for_requests(self, resident: _Resident) -> None:
        """Loads it for those that wait, and starts or refuses them."""
        error: BaseException | None = None
        try:
            await self._load(resident, pin=False)
        except LmiError as failed:
            name = name_of_key(resident.adapter.key)
            error = type(failed)(f"adapter {name} could not be loaded: {failed.message}", "adapters")
        resident.loading = None
        waiting, resident.waiting = resident.waiting, {}
        for number, (start, refuse) in waiting.items():
            if error is None:
                resident.running.add(number)
                start()
            else:
                refuse(error)

    async def _load(self, resident: _Resident, *, pin: bool) -> None:
        """Raises LmiError."""
        async with self._turn:
            if resident.gone:
                raise AdapterError("the adapter has been unregistered", "adapters")
            try:
                await self._load_in_turn(resident, pin=pin and not resident.pinned)
            except LmiError:
                raise
            except Exception as error:
                # Whoever waits for it is to be told of this too.
                log.exception("adapter %s could not be loaded", resident.adapter.name)
                raise AdapterError(f"{type(error).__name__}: {error}") from error

    async def _load_in_turn(self, resident: _Resident, *, pin: bool) -> None:
        if pin:
            self._check_pins()
        if resident not in self._loaded:
            await self._make_room()
            await self._loader.load(resident.adapter)
            self._loaded[resident] = None
            self._loads += 1
        if pin:
            await self._loader.pin(resident.adapter)
            resident.pinned = True

    def _check_pins(self) -> None:
        pinned, most = sum(one.pinned for one in self._loaded), self._loader.most_pinned
        if pinned >= most:
            raise NoSlotError(
                f"{pinned} adapters are pinned, expected at most {most} (option.max_loras, option.max_cpu_loras): "
                "a slot has to stay free"
            )

    async def _make_room(self) -> None:
        patient_until = 0.0
        while len(self._loaded) >= self._loader.most_loaded:
            idle = [one for one in self._loaded if one.gone or not (one.running or one.pinned)]
            if idle:
                await self._unload(min(idle, key=lambda one: (bool(one.numbers), one.used)))
                continue
            now = asyncio.get_running_loop().time()
            if not patient_until:
                log.info("all of the %d adapters that are kept in memory are in use: another waits", len(self._loaded))
                patient_until = now + PATIENCE_S
            elif now >= patient_until and self._yielding is None:
                self._yielding = min((one for one in self._loaded if not one.pinned), key=lambda one: one.used)
            self._room.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._room.wait(), None if self._yielding else patient_until - now)
        self._yielding = None

    def _drop_if_gone(self, resident: _Resident) -> None:
        if resident.gone:
            self._room.set()
            self._run(self._drop(resident))

    async def _drop(self, resident: _Resident) -> None:
        async with self._turn:
            # Room may have been made of it meanwhile.
            await self._unload(resident)
            self._loader.forget(resident.adapter)

    async def _unload(self, resident: _Resident) -> None:
        if resident in self._loaded:
            del self._loaded[resident]
            try:
                await self._loader.unload(resident.adapter)
            except Exception:
                log.exception("adapter %s could not be unloaded", resident.adapter.name)

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
