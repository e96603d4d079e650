"""What `lmi serve` checks before it starts anything. Imports little, for the engine's process waits for it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path

from ..model.options.settings import Settings

__all__ = ["GROUP", "entry_point_of", "has_code", "has_own_code"]

GROUP = "lmi.dialects"
"""The group of entry points that names dialects."""


def entry_point_of(settings: Settings, environment: Mapping[str, str]) -> str:
    """As DJL Serving finds it (PyModel.load): the option goes first; empty: model.py, where there is one."""
    return settings.host.get("entryPoint") or environment.get("DJL_ENTRY_POINT", "")


def has_own_code(settings: Settings) -> bool:
    """Whether the model directory or its options name user code."""
    directory = Path(settings.model_dir)
    options = (settings.custom_formatter, settings.input_formatter, settings.content_filter)
    return any(options) or (directory / "model.py").is_file() or any(directory.glob("*.dist-info/entry_points.txt"))


def has_code(settings: Settings) -> bool:
    """Whether there is user code: the model directory's, or an installed package's."""
    return has_own_code(settings) or bool(importlib.metadata.entry_points(group=GROUP))
