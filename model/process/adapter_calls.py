"""The adapters of an engine, seen from the host's process: kept here, so that a rebuilt engine has them again.

add --SetAdapter--> adapters/residents.py --AdapterOutcome--> the Future;   Start has all of them
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from ..adapters.adapter import Adapter
from ..errors import ErrorMessage, LmiError, UnavailableError
from .channel import Channel
from .messages import AdapterOutcome, FromEngine, RemoveAdapter, SetAdapter

__all__ = ["AdapterCalls"]


class AdapterCalls:
    """An EngineAdapters (model/engine.py)."""

    def __init__(self, channel: Callable[[], Channel[FromEngine] | None], started: Callable[[], bool]) -> None:
        """`channel`: the engine's that is up, or None. `started`: whether one has ever been."""
        self._channel = channel
        self._started = started
        self._lock = threading.Lock()
        self._registered: dict[str, Adapter] = {}
        self._pending: dict[str, tuple[Adapter | None, Future[None]]] = {}
        """What an engine has been asked; None for an adapter that has been removed meanwhile."""
        self._given: set[str] = set()
        """The keys of those that the last engine was started with."""
        self.faults: dict[str, LmiError] = {}

    def for_start(self) -> tuple[Adapter, ...]:
        """Those that an engine is to have at its start; what is removed meanwhile it is told when it is up."""
        with self._lock:
            self._given = set(self._registered)
            return tuple(self._registered.values())

    def add(self, adapter: Adapter) -> Future[None]:
        """Registers or pins one; for any thread."""
        future: Future[None] = Future()
        with self._lock:
            if not self._started():
                self._registered[adapter.key] = adapter
                future.set_result(None)
                return future
            self._pending[adapter.key] = adapter, future
        self._post(SetAdapter(adapter))
        return future

    def remove(self, key: str) -> None:
        """Ends one; for any thread."""
        with self._lock:
            self._registered.pop(key, None)
            self.faults.pop(key, None)
            if key in self._pending:
                self._pending[key] = None, self._pending[key][1]
        self._post(RemoveAdapter(key))

    def settle(self, outcome: AdapterOutcome) -> None:
        """Takes what the engine says of a registration."""
        with self._lock:
            adapter, future = self._pending.pop(outcome.key, (None, None))
            if future is None:
                return
            if outcome.fault is None and adapter is not None:
                self._registered[outcome.key] = adapter
        if outcome.fault is None:
            future.set_result(None)
        else:
            future.set_exception(outcome.fault.error)

    def ready(self, faults: Mapping[str, ErrorMessage]) -> None:
        """An engine is up, without those that it could not load: they are tried again when a request names them."""
        with self._lock:
            self.faults = {key: fault.error for key, fault in faults.items()}
            removed = self._given - self._registered.keys()
        for key in removed:
            self._post(RemoveAdapter(key))

    def fail(self, reason: str) -> None:
        """The engine has ended: what it was asked last is not answered any more."""
        with self._lock:
            pending, self._pending = self._pending, {}
        for _, future in pending.values():
            future.set_exception(UnavailableError(reason))

    def _post(self, message: SetAdapter | RemoveAdapter) -> None:
        channel = self._channel()
        try:
            if channel is None:
                raise OSError
            channel.post(message)
        except OSError:
            if isinstance(message, SetAdapter):
                self.settle(AdapterOutcome(message.adapter.key, NO_ENGINE))


NO_ENGINE = ErrorMessage.of(UnavailableError("the engine is being rebuilt, try again later"))
