"""The adapters that are registered, from the first word of one to its end.

    find --at start: folder, registry file--> entry --------------> ready, or failed with its cause
    enter --an API, or the first request that names it--> entry --load--> ready, or failed

A request that names one waits while it is being loaded (NotReadyError), and is refused with the cause where it failed.
Each registration has a number of its own, which is never used again: what has been registered anew is another adapter
for the engine, whatever its name (Adapter.key).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Literal

import msgspec

from ...formatters import NotReadyError
from ...model.adapters.adapter import Adapter
from ...model.adapters.files import read_adapter
from ...model.adapters.folder import base_config, chosen_rank, found, read_all, refusal
from ...model.engine import Engine
from ...model.errors import AdapterError, LmiError, ModelNotFoundError
from ...model.options import Settings
from ..user_code.adapter_code import AdapterCode
from .sources import check_name, folder_of, is_plain
from .store import Kept, Store

__all__ = ["Entry", "Registry"]

log = logging.getLogger(__name__)

Source = Literal["folder", "kept", "api", "name"]
"""Where an adapter comes from: the folder `adapters`, the registry file, an API, lora_cache_dir by its name."""

MAX_FAILURES = 1000
"""How many registrations that failed are remembered."""
RETRY_AFTER_S = 30.0
LOADERS = 2
"""Threads that load what a request has named first."""


class Entry:
    """A registration."""

    __slots__ = ("adapter", "alias", "code", "ready", "retry_after", "source", "used")

    def __init__(self, adapter: Adapter, source: Source, alias: str | None) -> None:
        self.adapter = adapter
        self.source = source
        self.alias = alias
        self.ready: Future[None] = Future()
        """Done when it can be used, or failed."""
        self.code: AdapterCode | None = None
        """What of the user's lies in its folder."""
        self.retry_after = math.inf
        """When one of lora_cache_dir that has failed is tried again, by time.monotonic()."""
        self.used = 0
        """When a request last named it, as a count."""

    @property
    def shown(self) -> str:
        """What messages call it."""
        return self.alias or self.adapter.name

    @property
    def failed(self) -> bool:
        """Whether it could not be loaded."""
        return self.ready.done() and self.ready.exception() is not None


class Registry:
    """An AdapterNames (formatters/adapters.py) of one engine. For any thread."""

    def __init__(
        self, settings: Settings, engine: Engine, load_code: Callable[[str, Path], AdapterCode | None]
    ) -> None:
        """`load_code(name, folder)` gives what of the user's lies in an adapter's folder; raises AdapterError."""
        self._settings = settings
        self._engine = engine
        self._load_code = load_code
        self._base = base_config(settings)
        self._numbers = count(1)
        self._clock = count(1)
        self._lock = threading.RLock()
        self._entries: dict[str, Entry] = {}
        self._aliases: dict[str, str] = {}
        self._store = Store(settings.adapters.adapters_registry or "")
        self._loaders = ThreadPoolExecutor(LOADERS, "lmi-adapters")
        self._max_rank: int | None = settings.adapters.max_lora_rank

    # At start.

    def find(self) -> None:
        """Registers what lies in the model directory and what the registry file has, before the engine starts.

        Raises OptionError for what is broken in the model directory, all of it at once, unless
        option.adapters_on_error is warn.
        """
        settings = self._settings
        folders = found(settings)
        files, _ = read_all(folders, base=None, max_rank=None)
        self._max_rank = chosen_rank(settings, files)
        _, faults = read_all(folders, base=self._base, max_rank=self._max_rank)
        entries = [self._add(name, str(path), "folder") for name, path in folders.items()]
        for entry in entries:
            if (fault := faults.get(entry.adapter.name)) is None:
                fault = self._load_code_of(entry)
            if fault is not None:
                faults[entry.adapter.name] = fault
                self._fail(entry, fault)
            else:
                self._engine.adapters.add(entry.adapter)
        if faults and settings.adapters.adapters_on_error == "fail":
            raise refusal(faults, folders, self._max_rank)
        self._find_kept(set(folders))

    def started(self) -> None:
        """To be called when the engine is up; raises OptionError as `find` does."""
        faults: dict[str, AdapterError] = {}
        for entry in list(self._entries.values()):
            if entry.ready.done():
                continue
            fault = self._engine.adapters.faults.get(entry.adapter.key)
            if fault is None:
                entry.ready.set_result(None)
                continue
            self._fail(entry, fault)
            self._engine.adapters.remove(entry.adapter.key)
            if entry.source == "folder":
                faults[entry.adapter.name] = AdapterError(fault.message)
        if faults and self._settings.adapters.adapters_on_error == "fail":
            raise refusal(faults, found(self._settings), self._max_rank)

    def _find_kept(self, in_folder: set[str]) -> None:
        """What was registered before; a fault of these never keeps a server from starting."""
        for name, kept in self._store.read().items():
            if name in in_folder:
                log.warning("adapter %s: the one in the folder adapters is served, not %s", name, kept.src)
                continue
            entry = self._add(name, kept.src, "kept", alias=kept.alias, preload=kept.preload, pin=kept.pin)
            if (fault := self._check(entry)) is not None:
                self._fail(entry, fault)
            else:
                self._engine.adapters.add(entry.adapter)

    # Naming.

    @property
    def has_code(self) -> bool:
        """Whether user code lies in one's folder, or may once it is loaded."""
        return any(entry.code is not None or not entry.ready.done() for entry in list(self._entries.values()))

    def knows(self, name: str) -> bool:
        """Whether there is one of this name or alias."""
        return name in self._entries or name in self._aliases or self._folder_of_name(name) is not None

    def key(self, name: str) -> str:
        """What the engine calls it; raises ModelNotFoundError, AdapterError, NotReadyError."""
        return self.entry(name).adapter.key

    def code(self, name: str) -> AdapterCode | None:
        """What of the user's lies in its folder; raises as `key` does."""
        return self.entry(name).code

    def entry(self, name: str) -> Entry:
        """The one of this name or alias, which is ready; raises ModelNotFoundError, AdapterError, NotReadyError."""
        entry = self._entries.get(name) or self._entries.get(self._aliases.get(name, ""))
        if entry is None or (entry.source == "name" and time.monotonic() > entry.retry_after):
            entry = self._by_name(name)
        if not entry.ready.done():
            raise NotReadyError(entry.ready)
        if (error := entry.ready.exception()) is not None:
            raise AdapterError(f"adapter {entry.shown} could not be loaded: {_message(error)}", "adapters")
        entry.used = next(self._clock)
        return entry

    def registered(self) -> list[Entry]:
        """Those that are, by name, without what failed."""
        with self._lock:
            entries = sorted(self._entries.items())
        return [entry for _, entry in entries if not entry.failed]

    def _folder_of_name(self, name: str) -> Path | None:
        """The folder of lora_cache_dir that a name means."""
        directory = self._settings.adapters.lora_cache_dir
        if directory is None or not is_plain(name):
            return None
        folder = Path(directory, name)
        return folder if folder.is_dir() else None

    def _by_name(self, name: str) -> Entry:
        """One of lora_cache_dir, which begins to be loaded; raises ModelNotFoundError."""
        folder = self._folder_of_name(name)
        if folder is None:
            # Not which there are: they are other tenants'.
            raise ModelNotFoundError(f"adapters: adapter {name[:64]!r} is not registered", "adapters")
        with self._lock:
            there = self._entries.get(name)
            if there is not None and not there.failed:
                return there
            self._evict()
            entry = self._add(name, str(folder), "name")
        self._loaders.submit(self._load_quietly, entry)
        return entry

    def _evict(self) -> None:
        """Makes room for another one of lora_cache_dir."""
        named = [entry for entry in self.registered() if entry.source == "name" and entry.ready.done()]
        most = self._settings.adapters.lora_cache_size
        for entry in sorted(named, key=lambda entry: entry.used)[: max(0, len(named) + 1 - most)]:
            self._drop(entry)

    # The management API.

    def enter(
        self, name: str, source: str, *, alias: str | None = None, preload: bool = True, pin: bool = False
    ) -> Entry:
        """Enters a registration, so that requests wait for it from now on; `load` is to be called with it.

        One that is there with the same folder is given as it is. Raises AdapterError.
        """
        check_name(name)
        if pin and not preload:
            raise AdapterError("Can not set preload to false and pin to true", "pin")
        there = self._entries.get(name)
        if there is not None and there.source == "folder" and there.adapter.path == source:
            # DJL Serving registers at its start what has been found here, even what is broken.
            return there
        path = folder_of(source)
        if there is not None and not there.failed:
            if there.adapter.path == path:
                return there
            if there.source in {"folder", "api"}:
                raise AdapterError(f"Adapter {name} is registered already, from {there.adapter.path}", "name")
        if there is not None:
            self._drop(there)
        return self._add(name, path, "api", alias=alias, preload=preload, pin=pin)

    def load(self, entry: Entry) -> None:
        """Loads what was entered, and returns when it can be used; raises LmiError. Waits: not for an event loop."""
        if entry.ready.done():
            if (error := entry.ready.exception()) is not None:
                raise error
            return
        fault = self._check(entry)
        if fault is None:
            try:
                self._engine.adapters.add(entry.adapter).result()
            except LmiError as error:
                fault = error
        if fault is not None:
            self._fail(entry, fault)
            raise fault
        if self._entries.get(entry.adapter.name) is not entry:
            # It has been unregistered meanwhile.
            self._engine.adapters.remove(entry.adapter.key)
        entry.ready.set_result(None)
        self._keep(entry)

    def update(
        self, name: str, source: str | None = None, *, preload: bool | None = None, pin: bool | None = None
    ) -> Entry:
        """Changes one that is registered; raises AdapterError, with djl_python's words. Waits for the engine."""
        entry = self._registered(name)
        entry.ready.result()
        adapter = entry.adapter
        if source and folder_of(source) != adapter.path:
            raise AdapterError("Updating adapter path is not supported.", "src")
        if pin is False and adapter.pin:
            raise AdapterError("Unpinning adapter is not supported. Unregister the adapter and register it anew", "pin")
        pinned, preloaded = adapter.pin or bool(pin), adapter.preload if preload is None else preload
        if pinned and preload is False:
            raise AdapterError("Can not set preload to false and pin to true", "pin")
        changed = msgspec.structs.replace(adapter, preload=preloaded or pinned, pin=pinned)
        if changed != adapter:
            self._engine.adapters.add(changed).result()
            entry.adapter = changed
            self._keep(entry)
        return entry

    def unregister(self, name: str) -> Entry:
        """Takes a name away from requests; those that use it end as if it were there. Raises AdapterError."""
        entry = self._registered(name, failed=True)
        self._drop(entry)
        if entry.source in {"api", "kept"}:
            self._store.put(name, None)
        return entry

    def close(self) -> None:
        """Ends the threads."""
        self._loaders.shutdown(wait=False, cancel_futures=True)

    def _registered(self, name: str, *, failed: bool = False) -> Entry:
        entry = self._entries.get(name)
        if entry is None or (entry.failed and not failed):
            raise AdapterError(f"Adapter {name} not registered.", "name")
        return entry

    def _add(
        self, name: str, path: str, source: Source, *, alias: str | None = None, preload: bool = True, pin: bool = False
    ) -> Entry:
        entry = Entry(Adapter(name, next(self._numbers), path, preload, pin), source, alias)
        entry.used = next(self._clock)
        with self._lock:
            self._entries[name] = entry
            if alias:
                self._aliases[alias] = name
        return entry

    def _drop(self, entry: Entry) -> None:
        name = entry.adapter.name
        with self._lock:
            if self._entries.get(name) is entry:
                del self._entries[name]
            if entry.alias and self._aliases.get(entry.alias) == name:
                del self._aliases[entry.alias]
        if not entry.failed:
            self._engine.adapters.remove(entry.adapter.key)
        if entry.code is not None:
            entry.code.close()

    def _check(self, entry: Entry) -> LmiError | None:
        """What is wrong with its files or its code; its code is loaded."""
        try:
            read_adapter(Path(entry.adapter.path), base=self._base, max_rank=self._max_rank)
        except AdapterError as error:
            return error
        return self._load_code_of(entry)

    def _load_code_of(self, entry: Entry) -> AdapterError | None:
        try:
            entry.code = self._load_code(entry.adapter.name, Path(entry.adapter.path))
        except AdapterError as error:
            return error
        return None

    def _fail(self, entry: Entry, fault: LmiError) -> None:
        log.error("adapter %s (%s) could not be loaded: %s", entry.shown, entry.adapter.path, fault)
        with self._lock:
            failed = [name for name, one in self._entries.items() if one.failed]
            for name in failed[: max(0, len(failed) + 1 - MAX_FAILURES)]:
                del self._entries[name]
        entry.retry_after = time.monotonic() + RETRY_AFTER_S
        entry.ready.set_exception(fault)

    def _load_quietly(self, entry: Entry) -> None:
        try:
            self.load(entry)
        except LmiError:
            # It is logged, and kept for requests.
            pass
        except Exception as error:
            log.exception("adapter %s", entry.shown)
            entry.ready.set_exception(AdapterError(f"{type(error).__name__}: {error}"))

    def _keep(self, entry: Entry) -> None:
        if entry.source in {"api", "kept"}:
            adapter = entry.adapter
            kept = Kept(adapter.path, entry.alias, preload=adapter.preload, pin=adapter.pin)
            self._store.put(adapter.name, kept)


def _message(error: BaseException) -> str:
    return error.message if isinstance(error, LmiError) else str(error)
