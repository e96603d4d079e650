"""What `lmi serve` checks before it starts anything. Imports little, for the engine's process waits for it."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path

from ..model.options.settings import Settings

__all__ = ["GROUP", "entry_point_of", "has_code", "has_hooks", "has_own_code", "is_of_hooks"]

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


HOOK_VARIABLES = (
    "CUSTOM_FASTAPI_PING_HANDLER", "CUSTOM_FASTAPI_INVOCATION_HANDLER", "CUSTOM_FASTAPI_MIDDLEWARE_THROTTLE",
    "CUSTOM_FASTAPI_MIDDLEWARE_PRE_POST_PROCESS", "CUSTOM_PRE_PROCESS", "CUSTOM_POST_PROCESS",
)  # fmt: skip
"""By which AWS's library for model containers, model-hosting-container-standards (0.1.16), is told of functions."""
SCRIPT_VARIABLE = "CUSTOM_SCRIPT_FILENAME"
"""Its name for the file with them, model.py otherwise."""
HOOK_MARKS = (b"model_hosting_container_standards", b"def custom_sagemaker_")


def is_of_hooks(file: Path) -> bool:
    """Whether a Python file has hooks of that library: then it is the library's to import, and nobody else's."""
    return file.is_file() and any(mark in file.read_bytes() for mark in HOOK_MARKS)


def has_hooks(directory: Path, environment: Mapping[str, str]) -> bool:
    """Whether a model directory or the environment has such hooks."""
    named = any(environment.get(name) for name in HOOK_VARIABLES)
    return named or is_of_hooks(directory / (environment.get(SCRIPT_VARIABLE) or "model.py"))
