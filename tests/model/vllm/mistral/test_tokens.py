"""Text of Mistral's tokens is exact, token by token and at once, whatever becomes of special ones."""

from __future__ import annotations

from typing import Any

import pytest

from lmi.model.vllm.mistral.tokens import MistralTokens, tokens_of

from ....kit.models.mistral import VERSIONS, mistral_directory, token_ids

pytestmark = pytest.mark.engine

TEXTS = (
    "Hello world", " leading", "emoji 👩‍👩‍👧 🏳️‍🌈 x", "世界和平，你好。𠮷野家", "مرحبا بالعالم", "हिन्दी ภาษาไทย",
    "a\n\n  b\t\tc", "\u0000\u001f é̂", "</s> as a text", "🤷🏽‍♀️" * 3,
)  # fmt: skip


@pytest.fixture(scope="module", params=VERSIONS)
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from vllm.tokenizers import get_tokenizer

    folder = mistral_directory(tmp_path_factory.mktemp("mistral") / "model", request.param)
    return get_tokenizer(str(folder), tokenizer_mode="mistral")


def test_text_is_exact(tokenizer: Any) -> None:
    tokens = tokens_of(tokenizer)
    assert isinstance(tokens, MistralTokens)
    prompt = tokenizer.encode("[INST] x [/INST]")
    # SentencePiece's begins each text with a blank, as in vLLM's streams.
    blank = "" if tokenizer.is_tekken else " "
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert b"".join(map(tokens.raw, ids)).decode() == tokens.text(ids) == blank + text
        for skip in (True, False):
            decode = tokens.stream(prompt, skip, True)
            assert "".join(map(decode, ids)) == blank + text
            assert tokens.stream(prompt, skip, True)(ids) == blank + text


def test_special_tokens_are_hidden_but_for_those_that_parsers_look_for(tokenizer: Any) -> None:
    """Which these are, vLLM's own decoder says."""
    from vllm.tokenizers.detokenizer_utils import convert_prompt_ids_to_tokens, detokenize_incrementally

    tokens = tokens_of(tokenizer)
    prompt = tokenizer.encode("x")
    ids = [one for special in sorted(tokens.special_ids)[:40] for one in (*token_ids(tokenizer, "a"), special)]
    seen, prefix, read = convert_prompt_ids_to_tokens(tokenizer, prompt, True)
    given, expected = [*prompt], ""
    for token_id in ids:
        given.append(token_id)
        new, piece, prefix, read = detokenize_incrementally(tokenizer, given, seen, prefix, read, True, True)
        seen, expected = [*seen, *new], expected + piece
    # Of SentencePiece's it leaves out a blank behind a special token.
    assert tokens.stream(prompt, True, True)(ids).replace(" ", "") == expected.replace(" ", "")
    assert tokens.stream(prompt, False, True)([1, 2, 3]) == "<s></s>[INST]"


def test_a_prompt_may_end_within_a_character_and_a_model_may_have_more_tokens(tokenizer: Any) -> None:
    tokens = tokens_of(tokenizer)
    ids = tokenizer.encode("👩", add_special_tokens=False)
    for cut in range(1, len(ids)):
        assert tokens.stream(ids[:cut], True, True)(ids[cut:]).strip(" ") in ("👩", "")
    assert tokens.stream([], True, True)([tokenizer.vocab_size + 5]) == ""


def test_a_part_of_a_character_is_shown_as_such(tokenizer: Any) -> None:
    tokens = tokens_of(tokenizer)
    first, *_, last = tokenizer.encode("x👩", add_special_tokens=False)
    assert tokens.piece(first).strip(" ") == "x"
    assert tokens.piece(last) == "\ufffd"
    assert tokens.text([first, last]).strip(" ") == "x\ufffd"
