"""The adapters of a model directory, registered, with an engine that says what a test tells it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from lmi.formatters import NotReadyError
from lmi.handler.adapters.entries import Entry
from lmi.handler.adapters.registry import Registry
from lmi.handler.threads.pool import Workers
from lmi.handler.user_code.adapter_code import load_adapter_code

from .adapters import LLAMA, write_adapter
from .api.options import make_settings
from .user_code.engine import ScriptedEngine

__all__ = ["Entry", "NotReadyError", "Registered", "llama_dir", "registered"]


def llama_dir(directory: Path) -> Path:
    """A model directory that adapters of tests/kit/adapters.py fit; no weights are in it."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.joinpath("config.json").write_text(json.dumps(LLAMA))
    return directory


@contextmanager
def registered(folder: Path, **options: str) -> Iterator[Registered]:
    """The registry of a model directory in `folder`, not begun; adapters are written beside that."""
    server = Registered(folder, **options)
    try:
        yield server
    finally:
        server.close()


class Registered:
    """A registry and what is around it."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        self.model = llama_dir(folder / "model")
        self.settings = make_settings(self.model, **{"enable_lora": "true", **options})
        self.engine = ScriptedEngine()
        self.told = self.engine.adapters
        """What the engine is told."""
        self.workers = Workers(1)
        self.registry = Registry(self.settings, self.engine, partial(load_adapter_code, self.settings, self.workers))

    def close(self) -> None:
        self.registry.close()
        self.workers.close()

    def begin(self, meanwhile: Callable[[], None] = lambda: None) -> Registered:
        """As a service starts; `meanwhile`: while the engine does."""
        self.registry.find()
        meanwhile()
        self.registry.started()
        return self

    def adapter(self, name: str, **how: Any) -> str:
        """The path of one that is written."""
        return str(write_adapter(self.folder / "adapters of others" / name, LLAMA, **how))

    def register(self, name: str, source: str | None = None, **how: Any) -> Entry:
        """As an API does."""
        entry = self.registry.enter(name, source or self.adapter(name), **how)
        self.registry.load(entry)
        return entry

    @property
    def names(self) -> list[str]:
        """Of those that are registered."""
        return [entry.adapter.name for entry in self.registry.registered()]
