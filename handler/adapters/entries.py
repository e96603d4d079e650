"""Registrations and the table of them, by name and by alias."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import Future
from typing import Literal

from ...model.adapters.adapter import Adapter
from ..user_code.adapter_code import AdapterCode

__all__ = ["Entries", "Entry", "Source"]

Source = Literal["folder", "kept", "api", "name"]
"""Where an adapter comes from: the folder `adapters`, the registry file, an API, lora_cache_dir by its name."""

MAX_FAILURES = 1000
"""How many registrations that failed are remembered."""


class Entry:
    """A registration."""

    __slots__ = ("adapter", "alias", "begun", "code", "named", "ready", "requests", "retry_after", "source", "used")

    def __init__(self, adapter: Adapter, source: Source, alias: str | None) -> None:
        self.adapter = adapter
        self.source: Source = source
        self.alias = alias
        self.ready: Future[None] = Future()
        """Done when it can be used, or failed."""
        self.begun = False
        """Whether somebody loads it, or has."""
        self.code: AdapterCode | None = None
        """What of the user's lies in its folder."""
        self.retry_after = math.inf
        """When one of lora_cache_dir that has failed is tried again, by time.monotonic()."""
        self.requests = 0
        """How many requests have named it."""
        self.named = time.monotonic()
        """When a request last named it, or when it was made."""
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


class Entries:
    """The table; for any thread."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """To be held by whoever looks and then adds."""
        self._by_name: dict[str, Entry] = {}
        self._names: dict[str, str] = {}
        """By alias."""
        self._coded: set[Entry] = set()
        """Those that have code, or may have it once they are loaded."""

    @property
    def has_code(self) -> bool:
        """Whether one has code, or may have it once it is loaded; asked for each request."""
        return bool(self._coded)

    def get(self, name: str) -> Entry | None:
        """The one of this name or alias."""
        return self._by_name.get(name) or self._by_name.get(self._names.get(name, ""))

    def named(self, name: str) -> Entry | None:
        """The one of this name."""
        return self._by_name.get(name)

    def holds(self, entry: Entry) -> bool:
        """Whether it has not been dropped."""
        return self._by_name.get(entry.adapter.name) is entry

    def all(self) -> list[Entry]:
        """All of them, by name."""
        with self.lock:
            return [entry for _, entry in sorted(self._by_name.items())]

    def add(self, entry: Entry) -> None:
        """Adds one whose name is free."""
        with self.lock:
            failed = [one for one in self._by_name.values() if one.failed]
            for one in failed[: max(0, len(failed) - MAX_FAILURES)]:
                self.drop(one)
            self._by_name[entry.adapter.name] = entry
            if entry.alias:
                self._names[entry.alias] = entry.adapter.name
            self._coded.add(entry)
        entry.ready.add_done_callback(lambda _: None if entry.code else self._coded.discard(entry))

    def drop(self, entry: Entry) -> None:
        """Removes one, and forgets its code."""
        name = entry.adapter.name
        with self.lock:
            self._coded.discard(entry)
            if self.holds(entry):
                del self._by_name[name]
                if entry.alias and self._names.get(entry.alias) == name:
                    del self._names[entry.alias]
        entry.code = None
