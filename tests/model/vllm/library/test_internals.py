"""What is done with vLLM's private parts has a slower way where they are missing, and nothing else uses any."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from lmi.model.vllm.library import internals
from lmi.model.vllm.library.internals import keep_linear, unshared

from ....kit.faults.vllm_parts import library
from ....kit.paths import ROOT


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
    library(monkeypatch)
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
