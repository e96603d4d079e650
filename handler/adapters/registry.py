"""The adapters that are registered, from the first word of one to its end.

    find, started --at start (start.py)--> Entry --> ready, or failed with its cause
    enter --an API, or the first request that names it--> Entry --load (loading.py)--> ready, or failed

A request that names one waits while it is being loaded (NotReadyError), and is refused with the cause where it failed.
Each registration has a number of its own, which is never used again: what has been registered anew is another adapter
for the engine, whatever its name (Adapter.key).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import msgspec

from ...formatters import NotReadyError
from ...model.adapters.adapter import Adapter
from ...model.engine import Engine
from ...model.errors import AdapterError, AdapterExistsError, AdapterNotFoundError, LmiError, ModelNotFoundError
from ...model.options import Settings
from ...model.options.adapter_options import IMAGE
from ..user_code.adapter_code import AdapterCode
from . import start
from .entries import Entries, Entry, Source
from .loading import LoadCode, Loader
from .sources import check_name, folder_of, folder_within
from .store import Kept, Store

__all__ = ["Entry", "Registry"]

IDLE_S = 10.0
"""Seconds in which nobody has named one of lora_cache_dir before it may make room."""
EVICT_EVERY_S = 1.0
"""Seconds between two looks at whether there are too many of these."""
LOADERS = 2
"""Threads that load what a request has named first."""


class Registry:
    """An AdapterNames (formatters/adapters.py) of one engine. For any thread."""

    def __init__(self, settings: Settings, engine: Engine, load_code: LoadCode) -> None:
        """`load_code(name, folder)` gives what of the user's lies in an adapter's folder; raises AdapterError."""
        self._settings = settings
        self._engine = engine
        self._numbers = count(1)
        self._clock = count(1)
        self._entries = Entries()
        self._loader = Loader(settings, engine, self._entries, load_code)
        self._store = Store(settings.adapters.adapters_registry or "")
        self._evicted = 0.0
        self._keeping = threading.Lock()
        """Held while the registry file is made to say what is registered."""
        self._changing = threading.Lock()
        """Held by an update: of two at once the engine would tell the outcome of one only (adapter_calls.py)."""
        self._loaders = ThreadPoolExecutor(LOADERS, "lmi-adapters")

    def find(self) -> None:
        """Registers what is there already, before the engine starts; raises OptionError."""
        start.find(self._settings, self._engine, self._loader, self._store, self._add)

    def started(self) -> None:
        """To be called when the engine is up; raises OptionError."""
        start.started(self._settings, self._engine, self._loader, self._entries)

    # Naming.

    @property
    def for_images(self) -> str:
        """The name of the one that prompts with images have which name none; empty: there is none."""
        return IMAGE if IMAGE in self._settings.adapters.default_mm_loras else ""

    @property
    def has_code(self) -> bool:
        """Whether user code lies in one's folder, or may once it is loaded."""
        return self._entries.has_code

    def knows(self, name: str) -> bool:
        """Whether there is one of this name or alias."""
        return self._entries.get(name) is not None or self._folder_of_name(name) is not None

    def key(self, name: str) -> str:
        """What the engine calls it; raises ModelNotFoundError, AdapterError, NotReadyError."""
        entry = self.entry(name)
        entry.used, entry.named = next(self._clock), time.monotonic()
        entry.requests += 1
        if entry.source == "name" and entry.named > self._evicted + EVICT_EVERY_S:
            self._evicted = entry.named
            self._evict()
        return entry.adapter.key

    def code(self, name: str) -> AdapterCode | None:
        """What of the user's lies in its folder; raises as `key` does."""
        return self.entry(name).code

    def entry(self, name: str) -> Entry:
        """The one of this name or alias, which is ready; raises ModelNotFoundError, AdapterError, NotReadyError."""
        entry = self._entries.get(name)
        if entry is None or time.monotonic() > entry.retry_after:
            # Even if it is ready already: whoever asked did not know that it may have code.
            raise NotReadyError(self._by_name(name).ready)
        if not entry.ready.done():
            raise NotReadyError(entry.ready)
        if (error := entry.ready.exception()) is not None:
            cause = error.message if isinstance(error, LmiError) else str(error)
            raise AdapterError(f"adapter {entry.shown} could not be loaded: {cause}", "adapters")
        return entry

    def registered(self) -> list[Entry]:
        """Those that are, by name, without what failed."""
        return [entry for entry in self._entries.all() if not entry.failed]

    def _folder_of_name(self, name: str) -> Path | None:
        """The folder of lora_cache_dir that a name means."""
        directory = self._settings.adapters.lora_cache_dir
        return None if directory is None else folder_within(directory, name)

    def _by_name(self, name: str) -> Entry:
        """One of lora_cache_dir, which begins to be loaded; raises ModelNotFoundError."""
        folder = self._folder_of_name(name)
        if folder is None:
            # Not which there are: they are other tenants'.
            raise ModelNotFoundError(f"adapters: adapter {name[:64]!r} is not registered", "adapters")
        with self._entries.lock:
            there = self._entries.named(name)
            if there is not None and not there.failed:
                return there
            if there is not None:
                self._drop(there)
            entry = self._add(name, str(folder), "name")
        self._loaders.submit(self._load_quietly, entry)
        return entry

    def _evict(self) -> None:
        """Lets go of those of lora_cache_dir that are too many."""
        known = [entry for entry in self.registered() if entry.source == "name" and entry.ready.done()]
        surplus = max(0, len(known) - self._settings.adapters.lora_cache_size)
        # Later ones have requests on their way to the engine, or that waited for them and are about to name them again.
        idle = [entry for entry in known if entry.named < time.monotonic() - IDLE_S]
        for entry in sorted(idle, key=lambda entry: entry.used)[:surplus]:
            self._drop(entry)

    def _load_quietly(self, entry: Entry) -> None:
        # What failed is logged, and kept for requests.
        with contextlib.suppress(LmiError):
            self._loader.load(entry)
        # Those that have waited name it now.
        entry.named = time.monotonic()

    # The management API.

    def enter(
        self,
        name: str,
        source: str,
        *,
        alias: str | None = None,
        preload: bool = True,
        pin: bool = False,
        anew: bool = False,
    ) -> Entry:
        """Enters a registration, so that requests wait for it from now on; `load` is to be called with it.

        One that is there with the same folder is given as it is, but not where it is to be made `anew`. Raises
        AdapterError, AdapterNotFoundError, AdapterExistsError.
        """
        check_name(name)
        if pin and not preload:
            raise AdapterError("Can not set preload to false and pin to true", "pin")
        with self._entries.lock:
            there = self._entries.named(name)
            if not anew and there is not None and there.source == "folder" and _same(there.adapter.path, source):
                # DJL Serving registers at its start what has been found here, even what is broken.
                return there
            path = folder_of(source)
            if there is not None and not there.failed:
                same = _same(there.adapter.path, path) and (there.adapter.preload, there.adapter.pin) == (preload, pin)
                if not anew and same and there.source != "name":
                    return there
                if there.source in {"folder", "api"}:
                    known = f"Adapter {name} is registered already, from {there.adapter.path}"
                    raise AdapterExistsError(known, "name")
            if there is not None:
                self._drop(there)
            return self._add(name, path, "api", alias=alias, preload=preload, pin=pin)

    def load(self, entry: Entry, *, patient: bool = False) -> None:
        """Loads what was entered, and returns when it can be used; raises LmiError. Waits: not for an event loop.

        A `patient` one waits for an engine that is being rebuilt, for a host that cannot ask again.
        """
        self._loader.load(entry, patient=patient)
        self._keep(entry)

    def update(
        self, name: str, source: str | None = None, *, preload: bool | None = None, pin: bool | None = None
    ) -> Entry:
        """Changes one that is registered; raises AdapterError, with djl_python's words. Waits for the engine."""
        entry = self._registered(name)
        entry.ready.result()
        with self._changing:
            adapter = entry.adapter
            if source and not _same(folder_of(source), adapter.path):
                raise AdapterError("Updating adapter path is not supported.", "src")
            if pin is False and adapter.pin:
                how = "Unregister the adapter and register it anew"
                raise AdapterError(f"Unpinning adapter is not supported. {how}", "pin")
            pinned, preloaded = adapter.pin or bool(pin), adapter.preload if preload is None else preload
            if pinned and preload is False:
                raise AdapterError("Can not set preload to false and pin to true", "pin")
            changed = msgspec.structs.replace(adapter, preload=preloaded or pinned, pin=pinned)
            if changed != adapter:
                self._engine.adapters.add(changed).result()
                entry.adapter = changed
                if not self._entries.holds(entry):
                    # It has been unregistered meanwhile.
                    self._engine.adapters.remove(changed.key)
                self._keep(entry)
        return entry

    def unregister(self, name: str) -> Entry:
        """Takes a name away from requests; those that use it end as if it were there. Raises AdapterNotFoundError."""
        entry = self._registered(name, failed=True)
        self._drop(entry)
        if entry.source in {"api", "kept"}:
            with self._keeping:
                # It may have been registered anew meanwhile.
                if self._entries.named(name) is None:
                    self._store.put(name, None)
        return entry

    def close(self) -> None:
        """Ends the threads, and what waits."""
        self._loader.close()
        self._loaders.shutdown(wait=False, cancel_futures=True)

    def _registered(self, name: str, *, failed: bool = False) -> Entry:
        entry = self._entries.named(name)
        if entry is None or (entry.failed and not failed):
            raise AdapterNotFoundError(f"Adapter {name} not registered.", "name")
        return entry

    def _add(
        self, name: str, path: str, source: Source, *, alias: str | None = None, preload: bool = True, pin: bool = False
    ) -> Entry:
        entry = Entry(Adapter(name, next(self._numbers), path, preload, pin), source, alias)
        entry.used = next(self._clock)
        self._entries.add(entry)
        return entry

    def _drop(self, entry: Entry) -> None:
        self._entries.drop(entry)
        if not entry.failed:
            self._engine.adapters.remove(entry.adapter.key)

    def _keep(self, entry: Entry) -> None:
        """Writes it to the registry file, as it is now; but not one that has been unregistered meanwhile."""
        with self._keeping:
            if entry.source in {"api", "kept"} and self._entries.holds(entry):
                adapter = entry.adapter
                kept = Kept(adapter.path, entry.alias, preload=adapter.preload, pin=adapter.pin)
                self._store.put(adapter.name, kept)


def _same(path: str, other: str) -> bool:
    """Whether both are one folder: DJL Serving may know the model directory by another way."""
    try:
        return os.path.realpath(path) == os.path.realpath(other)
    except ValueError:
        # It is no path at all.
        return False
