"""Text from tokens as they come: fast tokenizers, those that are not, and spaces between special tokens.

What is expected of slow tokenizers is what vLLM makes of them (vllm/tokenizers/detokenizer_utils.py), which is what
transformers did before its version 5.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi.model.text.tokenizer import Tokenizer, _vllms_decoding, _window_stream

from ...demo.model import question

pytestmark = pytest.mark.engine


def fast() -> Any:
    """Words, with the spaces that a tokenizer without a decoder puts between all tokens."""
    from tokenizers import Tokenizer as Core
    from tokenizers import models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    core = Core(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2, "\ufffd": 3}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.add_special_tokens(["<x>", "<y>"])
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]")


def slow() -> Any:
    """Bytes, in Python."""
    from transformers import ByT5Tokenizer

    return ByT5Tokenizer(extra_ids=2)


def streamed(tokenizer: Any, tokens: list[str], skip: bool, spaces: bool) -> list[str]:
    decode = Tokenizer(tokenizer).stream(tokenizer.convert_tokens_to_ids(["a"]), skip, spaces)
    return [decode(token) for token in tokenizer.convert_tokens_to_ids(tokens)]


@pytest.mark.parametrize(
    ("skip", "spaces", "pieces"),
    [
        (False, True, [" b", " <x>", " <y>", " a"]),
        (False, False, [" b", " <x>", "<y>", " a"]),
        (True, True, [" b", "", "", " a"]),
        (True, False, [" b", "", "", " a"]),
    ],
)
def test_fast(skip: bool, spaces: bool, pieces: list[str]) -> None:
    assert fast().is_fast
    assert streamed(fast(), ["b", "<x>", "<y>", "a"], skip, spaces) == pieces


@pytest.mark.parametrize("prompt", [["\ufffd"], ["a", "\ufffd", "\ufffd"]])
def test_a_prompt_that_ends_with_a_replacement_character_is_not_repeated(prompt: list[str]) -> None:
    decode = Tokenizer(fast()).stream(fast().convert_tokens_to_ids(prompt), True, True)
    assert decode(1).strip() == "b"


VLLM = pytest.mark.parametrize("vllm", ["as it is", "another", "none"])


@VLLM
@pytest.mark.parametrize(
    ("skip", "spaces", "pieces"),
    [
        (False, True, ["b", " <extra_id_0>", " <extra_id_1>", " a", "b"]),
        (False, False, ["b", "<extra_id_0>", "<extra_id_1>", "a", "b"]),
        (True, True, ["b", "", "", "a", "b"]),
        (True, False, ["b", "", "", "a", "b"]),
    ],
)
def test_slow(skip: bool, spaces: bool, pieces: list[str], vllm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _choose(monkeypatch, vllm)
    assert not slow().is_fast
    assert streamed(slow(), ["b", "<extra_id_0>", "<extra_id_1>", "a", "b"], skip, spaces) == pieces


@VLLM
def test_slow_and_characters_of_several_tokens(vllm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _choose(monkeypatch, vllm)
    tokenizer = slow()
    decode = Tokenizer(tokenizer).stream([], True, True)
    pieces = [decode(token) for token in tokenizer("é🦊a", add_special_tokens=False)["input_ids"]]
    assert pieces == ["", "é", "", "", "", "🦊", "a"]


@pytest.fixture(autouse=True)
def _decoding() -> Iterator[None]:
    """What is known of the installed vLLM is asked for anew, before and after."""
    _vllms_decoding.cache_clear()
    yield
    _vllms_decoding.cache_clear()


def _choose(monkeypatch: pytest.MonkeyPatch, vllm: str) -> None:
    """vLLM is there, or one without the functions that decode, or seems not to be."""
    find = importlib.util.find_spec
    if vllm != "as it is":
        monkeypatch.setitem(sys.modules, "vllm.tokenizers.detokenizer_utils", None)
    if vllm == "none":
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, package=None: None if name == "vllm" else find(name, package)
        )


def test_a_vllm_that_decodes_otherwise_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _choose(monkeypatch, "another")
    for _ in range(2):
        Tokenizer(slow()).stream([], True, True)
    told = "slow tokenizers are read by us, as this vLLM differs from those that were tested: "
    assert [line.startswith(told) for line in caplog.messages if "tokenizers" in line] == [True]


def test_a_slow_tokenizer_without_vllm(demo_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(demo_model)
    for kind in ("unicode", "plain", "json"):
        asked = question(kind)
        prompt = tokenizer(asked.prompt)["input_ids"]
        answer = tokenizer(asked.answer, add_special_tokens=False)["input_ids"]
        ours = _window_stream(tokenizer, prompt, True, True)
        known = Tokenizer(tokenizer).stream(prompt, True, True)
        pieces = [ours(token) for token in answer]
        assert pieces == [known(token) for token in answer]
        assert "".join(pieces) == asked.answer


@pytest.mark.parametrize("kind", ["fast", "slow"])
def test_several_tokens_at_once_are_those_tokens_one_by_one(demo_model: Path, kind: str) -> None:
    """Wherever they end, within a character too: what is complete of its text does not wait for the rest of it."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(demo_model) if kind == "fast" else slow()
    ids = tokenizer.encode("Hello 🦊中é, 🦊🦊 world", add_special_tokens=False)
    assert len(ids) > 20
    made = Tokenizer(tokenizer)
    for end in range(1, len(ids) + 1):
        one = made.stream([], True, True)
        expected = "".join(one(token) for token in ids[:end])
        for size in (1, 2, 3, 5, end):
            several = made.stream([], True, True)
            parts = [several(ids[at : min(at + size, end)]) for at in range(0, end, size)]
            assert "".join(parts) == expected, (end, size)
