"""What is done with vLLM's private parts has a slower way where they are missing, and nothing else uses any."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmi.model.vllm.library import internals
from lmi.model.vllm.library.internals import keep_linear, keep_shapes, keep_texts, unshared

from ....kit.faults.vllm_parts import library
from ....kit.paths import ROOT


@pytest.fixture
def untold() -> Iterator[None]:
    """Nothing has been said of this vLLM, nor is afterwards."""
    caches = (internals._tell_slower, internals._state_class, keep_shapes, unshared)
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


def _keep_shapes_twice() -> None:
    keep_shapes()
    keep_shapes()


def _without_skip_clone() -> None:
    vars(sys.modules["vllm"])["SamplingParams"] = SimpleNamespace(__struct_fields__=("n", "seed"))
    assert unshared() == unshared() == {}


SLOWER = [
    (_keep_shapes_twice, "parsers take longer to make"),
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


class Words:
    """A tokenizer of transformers' that counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def decode(self, token_ids: Any, skip_special_tokens: bool = False) -> Any:
        self.asked.append(token_ids)
        return f"{token_ids} {skip_special_tokens}"


class Closed(Words):
    """One whose class is not to be extended."""

    def __init_subclass__(cls) -> None:
        raise TypeError("this class is final")


def test_a_tokenizer_is_asked_once_for_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(PreTrainedTokenizerBase=Words))
    words = Words()
    kept = keep_texts(words)
    assert [kept.decode([5]), kept.decode([5]), kept.decode([6])] == ["[5] False", "[5] False", "[6] False"]
    assert words.asked == [[5], [6]]
    # What is asked in another way is another's.
    assert kept.decode([5], skip_special_tokens=True) == "[5] True"
    assert [kept.decode(ids) for ids in (5, [[5]], [5, 6], [])] == [
        "5 False",
        "[[5]] False",
        "[5, 6] False",
        "[] False",
    ]
    other, closed = object(), Closed()
    assert keep_texts(other) is other
    assert keep_texts(closed) is closed


@pytest.mark.usefixtures("untold")
def test_a_shape_is_made_once_for_each_format_and_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[object, object]] = []

    def build(config: object, tokenizer: object) -> object:
        made.append((config, tokenizer))
        return object()

    parsers = SimpleNamespace(_build_drop_info=build)
    monkeypatch.setitem(sys.modules, "vllm.parser.engine.streaming_parser_engine", parsers)
    keep_shapes()
    # Formats are equal to others of the same values, and have no hash.
    config, same, tokenizer = {"a": 1}, {"a": 1}, object()
    first, again, second = (parsers._build_drop_info(one, tokenizer) for one in (config, config, same))
    assert first is again
    assert second is not first
    assert [one is expected for (one, _), expected in zip(made, (config, same), strict=True)] == [True, True]


@pytest.mark.engine
def test_a_token_is_decoded_once(demo_model: Path) -> None:
    """By what is else vLLM's own tokenizer, with the same texts for any tokens."""
    tokenizer = importlib.import_module("vllm.tokenizers").get_tokenizer(str(demo_model))
    kept = keep_texts(tokenizer)
    assert isinstance(kept, type(tokenizer))
    assert kept.get_vocab() == tokenizer.get_vocab()
    ids = [*tokenizer.get_vocab().values()]
    for token_id in ids:
        assert kept.decode([token_id]) == tokenizer.decode([token_id])
        assert kept.decode([token_id], skip_special_tokens=True) == tokenizer.decode(
            [token_id], skip_special_tokens=True
        )
    assert kept.decode(ids[:50]) == tokenizer.decode(ids[:50])
    assert kept.decode([ids[0]]) is kept.decode([ids[0]])
    other = object()
    assert keep_texts(other) is other


@pytest.mark.engine
def test_parsers_have_the_same_shapes(demo_model: Path) -> None:
    """What is made once for all of them is what vLLM makes for each."""
    tokenizer = importlib.import_module("vllm.tokenizers").get_tokenizer(str(demo_model))
    engines: Any = importlib.import_module("vllm.parser.engine.streaming_parser_engine")
    made = importlib.import_module("vllm.parser.qwen3").Qwen3Parser
    before = made(tokenizer)._engine
    build = engines._build_drop_info
    keep_shapes.cache_clear()
    keep_shapes()
    try:
        first, second = made(tokenizer)._engine, made(tokenizer)._engine
        assert first._lexer._shape is second._lexer._shape
        assert first._lexer._shape.literal_strings == before._lexer._shape.literal_strings
        assert first._resolved_token_ids == before._resolved_token_ids
    finally:
        engines._build_drop_info = build


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
