"""What is installed here, and what a test is told of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from importlib.metadata import EntryPoints, distributions
from typing import Any

import pytest

from .paths import ROOT

__all__ = ["LMI", "VERSION", "remember_entry_points", "without_vllm"]

LMI = (sys.executable, "-m", "lmi.handler.commands.cli")
"""The command `lmi`, which is no program of its own where the handler is only unpacked."""
(VERSION,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
"""Of the package, by its metadata' source: what is unpacked into a model directory has none."""


def remember_entry_points() -> None:
    """From here on those of what is installed are read once: a service's start would spend most of its time with it.

    What a test installs is in a folder that it adds to `sys.path`, and is looked for each time.
    """
    usual = [*sys.path]
    known = [point for found in distributions() for point in found.entry_points]

    def entry_points(**wanted: Any) -> EntryPoints:
        added = [place for place in sys.path if place not in usual]
        more = [point for found in distributions(path=added) for point in found.entry_points] if added else []
        return EntryPoints([*more, *known]).select(**wanted)

    metadata: Any = importlib.metadata
    metadata.entry_points = entry_points


def without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not vLLM is installed, who looks for it finds none; its import takes seconds."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, package=None: None if name == "vllm" else find(name, package)
    )
