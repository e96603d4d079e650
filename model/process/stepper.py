"""A user's own engine (`option.backend=module:name`), for an event loop: a thread of its own steps it.

    event loop: add, abort --> calls;   thread lmi-steps: calls, step, calls, step ... --> receive

What comes in while a step runs waits for its end: such an engine cannot take it before.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..backend import Backend, tokenized
from ..engine import EngineInfo, EngineStats
from ..events import EngineEvent, Started
from ..generation import Generation
from ..media.parts import MediaFile

__all__ = ["Stepper"]

log = logging.getLogger(__name__)

STATS_INTERVAL_S = 0.5
"""Seconds between two looks at how busy the engine is."""


class Stepper:
    """An AsyncBackend around a Backend."""

    def __init__(self, backend: Backend, refuse: Callable[[int, BaseException], None]) -> None:
        """`refuse`: is called on the event loop for what `Backend.add` raises, with the generation's number."""
        self._backend = backend
        self._refuse = refuse
        self._loop = asyncio.get_running_loop()
        self._calls: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._closed = False
        self._brought: asyncio.Queue[Sequence[tuple[int, EngineEvent]] | BaseException] = asyncio.Queue()
        self._preparing = threading.Lock()
        self._stats = EngineStats()
        self._looked_at = 0.0
        self._stats_failed = False

    @property
    def info(self) -> EngineInfo:
        """The engine's, as all the rest."""
        return self._backend.info

    @property
    def busy(self) -> bool:
        return self._backend.busy or bool(self._calls)

    async def begin(self) -> None:
        threading.Thread(target=self._run, name="lmi-steps", daemon=True).start()

    def prepare(self, number: int, generation: Generation, images: Sequence[MediaFile] = ()) -> Any:
        # Backends are promised one thread for what has no images.
        if images:
            return self._backend.prepare(number, generation, images)
        with self._preparing:
            return self._backend.prepare(number, generation)

    def tokenize(self, generation: Generation, images: Sequence[MediaFile] = ()) -> Started:
        with self._preparing:
            return tokenized(self._backend, generation, images)

    def tokens(self, prepared: Any) -> int:
        return self._backend.tokens(prepared)

    def prompt_text(self, prepared: Any) -> str:
        return self._backend.prompt_text(prepared)

    def add(self, number: int, prepared: Any) -> None:
        self._calls.append(partial(self._add, number, prepared))
        self._wake.set()

    def abort(self, numbers: Sequence[int]) -> None:
        self._calls.append(partial(self._backend.abort, numbers))
        self._wake.set()

    async def receive(self) -> Sequence[tuple[int, EngineEvent]]:
        brought = await self._brought.get()
        if isinstance(brought, BaseException):
            raise brought
        return brought

    def stats(self) -> EngineStats:
        return self._stats

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        self._backend.close()

    def _run(self) -> None:
        backend = self._backend
        try:
            while not self._closed:
                while self._calls:
                    self._calls[0]()
                    # Only now: until then the engine may not be busy yet.
                    self._calls.popleft()
                if backend.busy:
                    self._bring([*backend.step()])
                    if (now := time.monotonic()) - self._looked_at > STATS_INTERVAL_S:
                        self._stats, self._looked_at = self._now(), now
                else:
                    self._wake.wait()
                    self._wake.clear()
        except BaseException as error:  # noqa: BLE001 - raised on the event loop
            self._bring(error)

    def _add(self, number: int, prepared: Any) -> None:
        try:
            self._backend.add(prepared)
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001 - logged there
            self._loop.call_soon_threadsafe(self._refuse, number, error)

    def _now(self) -> EngineStats:
        """How busy the engine is, where it can tell; no request depends on it."""
        try:
            stats = self._backend.stats()
            return EngineStats(
                running=int(stats.running), waiting=int(stats.waiting), cache_usage=float(stats.cache_usage)
            )
        except Exception:
            if not self._stats_failed:
                log.exception("how busy the engine is cannot be told; further failures are not logged")
            self._stats_failed = True
            return EngineStats()

    def _bring(self, brought: Sequence[tuple[int, EngineEvent]] | BaseException) -> None:
        self._loop.call_soon_threadsafe(self._brought.put_nowait, brought)
