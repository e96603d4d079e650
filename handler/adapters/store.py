"""The file that keeps registered adapters (option.adapters_registry): a restarted worker has them at once.

{"name": {"src": "/folder", "alias": null, "preload": true, "pin": false}, ...}

Several workers may have the same file: each changes its own entry in what is there, under a lock.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..file_lock import lock_file

__all__ = ["Kept", "Store"]

log = logging.getLogger(__name__)


class Kept(msgspec.Struct, frozen=True):
    """A registration in the file."""

    src: str
    alias: str | None = None
    preload: bool = True
    pin: bool = False


_decode = msgspec.json.Decoder(dict[str, Kept]).decode


class Store:
    """The file; one without a path keeps nothing."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None

    def read(self) -> dict[str, Kept]:
        """What is in it; nothing, with a line in the log, where it cannot be read."""
        if self._path is None:
            return {}
        try:
            return _decode(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            log.error("the registry of adapters %s cannot be read and is begun anew: %s", self._path, error)
            return {}

    def put(self, name: str, kept: Kept | None) -> None:
        """Keeps a registration, or forgets it; where nothing can be written a line in the log says so, once."""
        if self._path is None:
            return
        try:
            with self._locked(self._path):
                entries: dict[str, Any] = {name: msgspec.to_builtins(one) for name, one in self.read().items()}
                entries.pop(name, None)
                if kept is not None:
                    entries[name] = msgspec.to_builtins(kept)
                partial = self._path.with_name(f"{self._path.name}.part")
                partial.write_text(json.dumps(entries, indent=1) + "\n")
                partial.replace(self._path)
        except TimeoutError as error:
            # The next one may have it.
            log.warning("adapter %s: not kept for the next start: %s (option.adapters_registry)", name, error)
        except OSError as error:
            log.warning("adapters are not kept for the next start: %s (option.adapters_registry)", error)
            self._path = None

    @contextlib.contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            lock_file(descriptor)
            yield
        finally:
            os.close(descriptor)
