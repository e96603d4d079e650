"""The adapters that are there when a server starts: those of the model directory, and those that were kept.

find --before the engine starts: files, code--> engine.adapters.add;   started --> ready, or failed with the cause
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from ...model.adapters.folder import chosen_rank, found, read_all, refusal
from ...model.engine import Engine
from ...model.errors import AdapterError
from ...model.options import Settings
from .entries import Entries, Entry
from .loading import Loader
from .store import Store

__all__ = ["find", "started"]

log = logging.getLogger(__name__)

Add = Callable[..., Entry]


def find(settings: Settings, engine: Engine, loader: Loader, store: Store, add: Add) -> None:
    """Registers what lies in the model directory and what the registry file has; `add` is Registry's.

    Raises OptionError for what is broken in the model directory, all of it at once, unless option.adapters_on_error is
    warn.
    """
    folders = found(settings)
    files, _ = read_all(folders, base=None, max_rank=None)
    loader.max_rank = chosen_rank(settings, files)
    _, faults = read_all(folders, base=loader.base, max_rank=loader.max_rank)
    for name, path in folders.items():
        entry = add(name, str(path), "folder")
        fault = faults.get(name) or loader.forbidden(entry) or loader.load_code(entry)
        if fault is None:
            engine.adapters.add(entry.adapter)
        else:
            faults[name] = fault
            loader.fail(entry, fault)
    _refuse(settings, faults, folders, loader)
    for name, kept in store.read().items():
        if name in folders:
            log.warning("adapter %s: the one in the folder adapters is served, not %s", name, kept.src)
            continue
        # A fault of these never keeps a server from starting.
        entry = add(name, kept.src, "kept", alias=kept.alias, preload=kept.preload, pin=kept.pin)
        if (broken := loader.check(entry)) is None:
            engine.adapters.add(entry.adapter)
        else:
            loader.fail(entry, broken)


def started(settings: Settings, engine: Engine, loader: Loader, entries: Entries) -> None:
    """To be called when the engine is up; raises OptionError as `find` does."""
    faults: dict[str, AdapterError] = {}
    for entry in entries.all():
        if entry.ready.done():
            continue
        fault = engine.adapters.faults.get(entry.adapter.key)
        if fault is None:
            entry.ready.set_result(None)
            continue
        loader.fail(entry, fault)
        engine.adapters.remove(entry.adapter.key)
        if entry.source == "folder":
            faults[entry.adapter.name] = AdapterError(fault.message)
    _refuse(settings, faults, found(settings), loader)


def _refuse(
    settings: Settings, faults: Mapping[str, AdapterError], folders: Mapping[str, Path], loader: Loader
) -> None:
    if faults and settings.adapters.adapters_on_error == "fail":
        raise refusal(faults, folders, loader.max_rank)
