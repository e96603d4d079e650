"""Data that tests read from TOML, which Python has from 3.11 on; engines run on later ones alone."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

__all__ = ["read_toml"]


def read_toml(path: Path) -> dict[str, Any]:
    """What a file holds; nothing where this Python does not read it."""
    if importlib.util.find_spec("tomllib") is None:
        return {}
    tomllib: Any = importlib.import_module("tomllib")
    found: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    return found
