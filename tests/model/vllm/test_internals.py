"""vLLM's private parts: each that is missing ends the start with an error that names it, and nothing else uses any."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lmi.model.vllm.internals import PARTS, check_library

from ...kit.api.errors import StartError
from ...kit.paths import ROOT


def stand_in(places: Sequence[str]) -> Any:
    """An object that has what these name."""
    top = SimpleNamespace()
    for place in places:
        here = top
        for name in place.split("."):
            if not hasattr(here, name):
                setattr(here, name, SimpleNamespace())
            here = getattr(here, name)
    return top


def library(monkeypatch: pytest.MonkeyPatch, places: Sequence[str]) -> None:
    """A stand-in for vLLM that has these parts and no other module."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
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
    vars(sys.modules["vllm"])["__version__"] = "9.9.9"


def told(error: StartError, name: str) -> bool:
    return error.message == f"vLLM 9.9.9 has no {name}, which the handler needs: vLLM 0.23 to 0.32 is supported"


def test_a_vllm_that_has_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    library(monkeypatch, PARTS)
    check_library()


@pytest.mark.parametrize("missing", PARTS)
def test_a_part_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    library(monkeypatch, [place for place in PARTS if place != missing])
    with pytest.raises(StartError) as caught:
        check_library()
    assert told(caught.value, missing.replace(":", "."))


@pytest.mark.engine
def test_the_installed_vllm_has_all_of_them() -> None:
    check_library()


DOCUMENTED = {
    "vllm": {"EngineArgs", "PoolingParams", "SamplingParams", "__version__", "envs"},
    "vllm.config": {"VllmConfig"},
    "vllm.exceptions": set[str](),
    "vllm.platforms": {"current_platform"},
    "vllm.sampling_params": {"StructuredOutputsParams"},
    "vllm.usage.usage_lib": {"UsageContext"},
}
"""What may be imported of vLLM anywhere."""


def imports_of_vllm(path: Path) -> list[str]:
    """What a source imports of vLLM that is not documented."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [one.name for one in node.names if one.name.startswith("vllm") and one.name not in DOCUMENTED]
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith("vllm"):
            module = node.module or ""
            found += [f"{module}.{one.name}" for one in node.names if one.name not in DOCUMENTED.get(module, ())]
    return found


ALLOWED = {ROOT / "model/vllm/internals.py", ROOT / "model/text/tokenizer.py"}
"""The second decodes by itself what vLLM is not there to decode."""


@pytest.mark.parametrize("layer", ["model", "formatters", "handler"])
def test_nobody_else_touches_what_is_private(layer: str) -> None:
    sources = [path for path in (ROOT / layer).rglob("*.py") if path not in ALLOWED]
    assert [f"{path}: {name}" for path in sources for name in imports_of_vllm(path)] == []


def test_an_import_of_a_private_part_is_found(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text("def f():\n    import vllm.parser\n    from vllm import EngineArgs, _custom_ops\n")
    assert imports_of_vllm(source) == ["vllm.parser", "vllm._custom_ops"]
