"""A stand-in for vLLM that has what is looked for when an engine starts, and nothing else."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lmi.model.vllm.library.parts import PARTS

__all__ = ["library"]


class StandIn(SimpleNamespace):
    """Something with names in it that may also be called."""

    def __call__(self) -> None: ...


def stand_in(places: Sequence[str]) -> Any:
    """An object that has what these name."""
    top = StandIn()
    for place in places:
        path, _, parameter = place.removesuffix(")").partition("(")
        here = top
        for name in path.split("."):
            if not hasattr(here, name):
                setattr(here, name, StandIn(__signature__=inspect.Signature()))
            here = getattr(here, name)
        if parameter:
            known = here.__signature__
            added = inspect.Parameter(parameter, inspect.Parameter.KEYWORD_ONLY)
            here.__signature__ = known.replace(parameters=[*known.parameters.values(), added])
    return top


def library(monkeypatch: pytest.MonkeyPatch, places: Sequence[str] = PARTS) -> None:
    """Puts one in vLLM's place that has these parts and no other module."""
    for name in [name for name in sys.modules.copy() if name.partition(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    inside: dict[str, list[str]] = {"vllm": []}
    for place in places:
        path, _, names = place.partition(":")
        inside.setdefault(path, []).append(names)
    for path, names_inside in inside.items():
        modules = path.split(".")
        for count in range(1, len(modules) + 1):
            name = ".".join(modules[:count])
            if name not in sys.modules:
                made = ModuleType(name)
                made.__path__ = []
                monkeypatch.setitem(sys.modules, name, made)
        vars(sys.modules[path]).update(vars(stand_in(names_inside)))
    vars(sys.modules["vllm"])["__version__"] = "0.28.0"
