"""Backends of the demo model that tests share, stepped by hand: one for each set of options, however many files ask.

    tests -> fixtures `plain_backend`, `chat_backend` (tests/conftest.py) -> BackendPool.get -> start.py: in_process

A test leaves what it was given as it found it: nothing runs in it any more, and what was patched is undone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from ..api.options import make_settings
from ..hosts.host import model_directory
from .start import in_process

__all__ = ["BackendPool"]


class BackendPool:
    """Backends of the demo model on vLLM, with three tokens a step where streamed: nothing depends on their number."""

    def __init__(self, demo_model: Path, folder: Path) -> None:
        self._demo_model = demo_model
        self._folder = folder
        self._running: dict[tuple[tuple[str, str], ...], Any] = {}

    def get(self, properties: Mapping[str, str]) -> Any:
        """The backend with these properties."""
        key = tuple(sorted(properties.items()))
        backend = self._running.get(key)
        if backend is None:
            folder = model_directory(self._demo_model, Path(mkdtemp(dir=self._folder)) / "model", properties)
            backend = self._running[key] = in_process(make_settings(folder, stream_interval="3"))
        return backend

    def close(self) -> None:
        """Ends all of them."""
        while self._running:
            self._running.popitem()[1].close()
