"""Prompts whose parts have been tokenized before have the ids that transformers gives them as a whole."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from .....kit.api.engine import KnownParts, parts_of
from .....kit.models.vocabularies import vocabulary

WORDS = [
    "Hi", " two", "\n", "\n\n", " ", "  ", "\u00e9", "e\u0301", "\u4e16\u754c", "\U0001f469\u200d\U0001f467", "\ufeff",
    "<", "|>", "1234", "<|im_", "<tool_call>", "<think>", "<|endoftext|>", "</s>", "[INST]", "system\n",
]  # fmt: skip
MARKS = {
    "qwen3": ["<|im_start|>", "<|im_end|>"],
    "llama3": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "gemma3": ["<start_of_turn>", "<end_of_turn>"],
    "deepseek_v3": ["<\uff5cend\u2581of\u2581sentence\uff5c>"],
}


@pytest.mark.engine
@pytest.mark.parametrize("name", MARKS)
def test_prompts_have_the_ids_that_they_have_as_a_whole(name: str) -> None:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(vocabulary(name))
    asked: list[str] = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        ids: list[int] = tokenizer._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    parts = parts_of(tokenizer._tokenizer, [tokenizer.chat_template], encode)
    assert parts is not None

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.sampled_from([*WORDS, *MARKS[name] * 3]), max_size=12))
    @example([" ", MARKS[name][0], "  ", MARKS[name][-1], "\n"])
    @example([MARKS[name][0]] * 3)
    def same(words: list[str]) -> None:
        text = "".join(words)
        made = parts.encode(text)
        assert (made is None) is not any(mark in text for mark in MARKS[name])
        if made is not None:
            assert made == tokenizer(text, add_special_tokens=False)["input_ids"]
            asked.clear()
            assert parts.encode(text) == made
            assert asked == []

    same()


def tokenizer_with(*added: Any) -> Any:
    """One of bytes, with these tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    signs = {sign: number for number, sign in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    core = Tokenizer(models.BPE(signs, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    for token in added:
        core.add_special_tokens([token]) if token.special else core.add_tokens([token])
    return core


TAKEN: dict[str, tuple[list[tuple[str, dict[str, bool]]], bool]] = {
    "a mark": ([("<a>", {})], True),
    "one that takes the white space before it": ([("<a>", {"lstrip": True})], False),
    "one that takes the white space after it": ([("<a>", {"rstrip": True})], True),
    "one that is no part of a word": ([("<a>", {"single_word": True})], False),
    "one that is looked for in what has been normalized": ([("<a>", {"normalized": True})], False),
    "a longer one": ([("<a>", {}), ("<a>b", {})], True),
    "a longer one that takes white space": ([("<a>", {}), ("<a>b", {"lstrip": True})], False),
    "one that ends as it begins": ([("<a>", {}), ("b<a", {})], False),
    "one with it in its midst": ([("<a>", {}), ("b<a>b", {})], False),
    "no special one": ([("<a>", {"special": False})], False),
}


FLAGS = {"special": True, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False}


def fast_of(added: list[tuple[str, dict[str, bool]]], **more: Any) -> Any:
    """What says of a tokenizer which tokens it has."""
    tokens = {at: SimpleNamespace(content=text, **{**FLAGS, **own}) for at, (text, own) in enumerate(added)}
    return SimpleNamespace(get_added_tokens_decoder=lambda: tokens, **more)


def codes(text: str) -> list[int]:
    return [ord(character) for character in text]


@pytest.mark.parametrize("kind", TAKEN)
def test_a_prompt_is_taken_apart_at_marks_that_nothing_around_them_changes(kind: str) -> None:
    added, apart = TAKEN[kind]
    parts = parts_of(fast_of(added), ["{{ '<a>' }}"], codes)
    assert (parts is not None) is apart
    assert parts is None or parts.encode("x <a> y") == codes("x <a> y")


@pytest.mark.engine
@pytest.mark.parametrize("kind", TAKEN)
def test_its_ids_are_those_of_the_whole(kind: str) -> None:
    from tokenizers import AddedToken

    added, apart = TAKEN[kind]
    core = tokenizer_with(*(AddedToken(text, **{"special": True, "normalized": False, **more}) for text, more in added))
    parts = parts_of(core, ["{{ '<a>' }}"], lambda text: core.encode(text, add_special_tokens=False).ids)
    assert (parts is not None) is apart
    for text in ("x <a> y", "x<a>b<a>", "b<a>b", " <a> <a> b<a"):
        if parts is not None:
            assert parts.encode(text) == core.encode(text, add_special_tokens=False).ids


def test_a_prompt_without_marks_is_not_taken_apart() -> None:
    assert parts_of(fast_of([]), ["<a>"], codes) is None
    assert KnownParts(["<a>"], codes).encode("x") is None


def test_a_tokenizer_that_takes_marks_for_text_is_left_alone() -> None:
    assert parts_of(fast_of(TAKEN["a mark"][0], encode_special_tokens=True), ["<a>"], codes) is None


def test_a_tokenizer_that_looks_beyond_its_marks_is_left_alone() -> None:
    assert parts_of(fast_of(TAKEN["a mark"][0]), ["<a>"], lambda text: [len(text), *codes(text)]) is None


def test_a_prompt_of_nothing_but_marks_is_not_taken_apart() -> None:
    parts = KnownParts(["<a>"], codes)
    assert parts.encode("<a>x" * 4000) == codes("<a>x" * 4000)
    assert parts.encode("<a>x" * 5000) is None


def test_what_comes_again_is_kept_and_the_rest_goes() -> None:
    asked: list[str] = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        return [len(text)]

    parts = KnownParts(["<a>"], encode)
    for number in range(40):
        asked.clear()
        assert parts.encode(f"<a>tools<a>{number:06d}" + "x" * 100_000) == [8, 100_009]
        assert ("<a>tools" in asked) is (number == 0)
    asked.clear()
    parts.encode("<a>000000" + "x" * 100_000)
    assert asked
    # One that would take the place of most others is not kept.
    for _ in range(2):
        asked.clear()
        parts.encode("<a>" + "y" * 200_000)
        assert asked
