"""vLLM's private parts: each that is missing ends the start with an error that names it, and nothing else uses any."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lmi.model.vllm.library import internals
from lmi.model.vllm.library.internals import keep_linear, unshared
from lmi.model.vllm.library.parts import PARTS, check_library

from ....kit.api.errors import StartError
from ....kit.paths import ROOT


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
    vars(sys.modules["vllm"])["__version__"] = "0.28.0"


def told(error: StartError, name: str) -> bool:
    return error.message == f"vLLM 0.28.0 has no {name}, which the handler needs: 0.26.0 to 0.32 is supported"


TOO_OLD = "vLLM {} is too old: 0.26.0 to 0.32 is supported; lmi-handler 0.2.0 is the last release for older ones"
UNTESTED = "vLLM {} was not tested: 0.26.0 to 0.32 is supported"


def test_a_vllm_that_has_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    library(monkeypatch, PARTS)
    check_library()


# Installed, the error that ends the start, the line in the log.
INSTALLED = [
    ("0.23.0", TOO_OLD, ""),
    # As LMI's containers name theirs.
    ("0.23.1.dev4+gcd87ce883", TOO_OLD, ""),
    ("0.25.1", TOO_OLD, ""),
    ("0.26.0", "", ""),
    ("0.26.0rc2", "", ""),
    ("0.28.1.dev3+cpu", "", ""),
    ("0.32.9", "", ""),
    ("0.33.0", "", UNTESTED),
    ("1.0.0", "", UNTESTED),
    ("dev", "", UNTESTED),
]


@pytest.mark.parametrize(("version", "fault", "line"), INSTALLED)
def test_versions(
    version: str, fault: str, line: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # One that is too old is told by its version, whatever else it lacks.
    library(monkeypatch, () if fault else PARTS)
    monkeypatch.setattr(sys.modules["vllm"], "__version__", version)
    with pytest.raises(StartError) if fault else nullcontext() as caught:
        check_library()
    if caught is not None:
        assert caught.value.message == fault.format(version)
    assert [record.getMessage() for record in caplog.records] == ([line.format(version)] if line else [])


@pytest.mark.parametrize("missing", PARTS)
def test_a_part_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    function, _, parameter = missing.partition("(")
    others = [place for place in PARTS if place != missing]
    library(monkeypatch, [*others, function] if parameter else others)
    with pytest.raises(StartError) as caught:
        check_library()
    assert told(caught.value, missing.replace(":", "."))


@pytest.mark.engine
def test_the_installed_vllm_has_all_of_them() -> None:
    check_library()


@pytest.fixture
def untold() -> Iterator[None]:
    """Nothing has been said of this vLLM, nor is afterwards."""
    caches = (internals._tell_slower, internals._state_class, unshared)
    for one in caches:
        one.cache_clear()
    yield
    for one in caches:
        one.cache_clear()


class Parser:
    """Of a vLLM whose parsers keep nothing that is known here."""


def _keep_linear_twice() -> None:
    keep_linear(Parser())
    keep_linear(Parser())


def _without_skip_clone() -> None:
    vars(sys.modules["vllm"])["SamplingParams"] = SimpleNamespace(__struct_fields__=("n", "seed"))
    assert unshared() == unshared() == {}


SLOWER = [
    (_keep_linear_twice, "parsers take longer for each token of a long answer"),
    (_without_skip_clone, "vLLM copies the parameters of each request"),
]


@pytest.mark.parametrize(("use", "line"), SLOWER)
@pytest.mark.usefixtures("untold")
def test_what_has_a_slower_way_takes_it_with_one_line(
    use: Callable[[], None], line: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    library(monkeypatch, PARTS)
    use()
    (told_once,) = caplog.messages
    assert told_once.startswith(f"{line}, as this vLLM differs from those that were tested: ")


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


ALLOWED = {ROOT / "model/vllm/library/internals.py", ROOT / "model/text/tokenizer.py"}
"""The second decodes by itself what vLLM is not there to decode."""


@pytest.mark.parametrize("layer", ["model", "formatters", "handler"])
def test_nobody_else_touches_what_is_private(layer: str) -> None:
    sources = [path for path in (ROOT / layer).rglob("*.py") if path not in ALLOWED]
    assert [f"{path}: {name}" for path in sources for name in imports_of_vllm(path)] == []


def test_an_import_of_a_private_part_is_found(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text("def f():\n    import vllm.parser\n    from vllm import EngineArgs, _custom_ops\n")
    assert imports_of_vllm(source) == ["vllm.parser", "vllm._custom_ops"]
