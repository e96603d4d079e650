"""What becomes of a registration: its files are checked, its code is loaded, the engine loads its weights.

load --files, code--> engine --> Entry.ready: done, or failed with the cause
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ...model.adapters.files import read_adapter
from ...model.adapters.folder import base_config
from ...model.engine import Engine
from ...model.errors import AdapterError, LmiError, UnavailableError
from ...model.options import Settings
from ..secure_mode import secure_mode
from ..user_code.adapter_code import AdapterCode
from .entries import Entries, Entry

__all__ = ["LoadCode", "Loader"]

log = logging.getLogger(__name__)

LoadCode = Callable[[str, Path], "AdapterCode | None"]

RETRY_AFTER_S = 30.0
"""Seconds after which one of lora_cache_dir that has failed is tried again."""
AGAIN_AFTER_S = 1.0
"""The same where only the engine was not there."""
TRIES = 3
"""How often a patient registration is tried: the adapter may be what ends the engine."""
PATIENCE_S = 1800.0
"""Seconds that it waits for an engine each time."""


class Loader:
    """Loads adapters into one engine; for any thread."""

    def __init__(self, settings: Settings, engine: Engine, entries: Entries, load_code: LoadCode) -> None:
        """`load_code(name, folder)` gives what of the user's lies in an adapter's folder; raises AdapterError."""
        self.base = base_config(settings)
        self.max_rank: int | None = settings.adapters.max_lora_rank
        """The highest rank that is taken; None: any that vLLM can be set to."""
        self._engine = engine
        self._entries = entries
        self._load_code = load_code
        self._closing = threading.Event()
        self._secure = secure_mode(os.environ)

    def load(self, entry: Entry, *, patient: bool = False) -> None:
        """Loads what has been entered, and returns when it can be used; raises LmiError.

        A `patient` one waits for an engine that is being rebuilt.
        """
        with self._entries.lock:
            mine, entry.begun = not (entry.begun or entry.ready.done()), True
        # Whoever else asks for it waits for that.
        if mine:
            fault = self._fault_of(entry, patient=patient)
            if fault is None:
                entry.ready.set_result(None)
            else:
                self.fail(entry, fault)
        if (error := entry.ready.exception()) is not None:
            raise error

    def check(self, entry: Entry) -> LmiError | None:
        """What is wrong with its files or its code; its code is loaded."""
        if (forbidden := self.forbidden(entry)) is not None:
            return forbidden
        try:
            read_adapter(Path(entry.adapter.path), base=self.base, max_rank=self.max_rank)
        except AdapterError as error:
            return error
        return self.load_code(entry)

    def forbidden(self, entry: Entry) -> AdapterError | None:
        """What secure mode forbids of its files."""
        try:
            if self._secure is not None:
                self._secure.check_adapter(Path(entry.adapter.path))
        except AdapterError as error:
            return error
        return None

    def load_code(self, entry: Entry) -> AdapterError | None:
        """Loads its code; what is wrong with that."""
        try:
            entry.code = self._load_code(entry.adapter.name, Path(entry.adapter.path))
        except AdapterError as error:
            return error
        return None

    def fail(self, entry: Entry, fault: LmiError) -> None:
        """Ends a registration with its cause, which requests that name it are told."""
        log.error("adapter %s (%s) could not be loaded: %s", entry.shown, entry.adapter.path, fault)
        entry.code = None
        if entry.source == "name":
            pause = AGAIN_AFTER_S if isinstance(fault, UnavailableError) else RETRY_AFTER_S
            entry.retry_after = time.monotonic() + pause
        entry.ready.set_exception(fault)

    def close(self) -> None:
        """Ends what waits for an engine."""
        self._closing.set()

    def _fault_of(self, entry: Entry, *, patient: bool) -> LmiError | None:
        try:
            fault = self.check(entry)
            if fault is None:
                fault = self._into_engine(entry)
                for _ in range(TRIES - 1 if patient else 0):
                    if not isinstance(fault, UnavailableError) or not self._engine_is_back():
                        break
                    fault = self._into_engine(entry)
        except Exception as error:
            log.exception("adapter %s could not be loaded", entry.shown)
            return AdapterError(f"{type(error).__name__}: {error}")
        if fault is None and not self._entries.holds(entry):
            # It has been unregistered meanwhile.
            self._engine.adapters.remove(entry.adapter.key)
            entry.code = None
        return fault

    def _into_engine(self, entry: Entry) -> LmiError | None:
        try:
            self._engine.adapters.add(entry.adapter).result()
        except LmiError as error:
            return error
        return None

    def _engine_is_back(self) -> bool:
        """Waits for an engine; whether there is one."""
        deadline = time.monotonic() + PATIENCE_S
        while not self._engine.healthy and time.monotonic() < deadline:
            if self._closing.wait(0.2):
                return False
        return self._engine.healthy
