"""With VLLM_USE_FASTOKENS=1 another library makes the ids of texts: they and the texts of tokens stay what they were.

vLLM has transformers' tokenizers take fastokens' core (vllm/tokenizers/fastokens.py), as is done here.

    text --TextEncoder, with fastokens--> ids == transformers' ids
    ids  --Tokenizer, with fastokens-->   texts, names, bytes == those without it
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmi.model.text.tokenizer import Tokenizer

from ...kit.api.engine import TextEncoder
from ...kit.hosts.host import Host, model_directory, running
from ...kit.hosts.pool import CHAT
from ...kit.models.vocabularies import CONFIGS, vocabulary
from ...kit.paths import ROOT
from ...kit.rows import each_row

pytestmark = pytest.mark.engine

family = pytest.mark.parametrize("name", sorted(CONFIGS.keys() - {"llama2", "llama3"}))
"""Llama 3's vocabulary is that of Llama 3.1; that of Llama 2 it does not read."""

WORDS = [
    "Hi", " two", "\n", "\n\n", " ", "   ", "\t", "12345", "3.14", "don't", "I'LL", "x_y", "fooBar", "{}", "();",
    "é", "e\u0301", "世界", "한국어", "مرحبا", "हिन्दी", "👩‍👩‍👧‍👦", "🇩🇪", "\ufeff", "\ufffd", "\x00", "▁", "Ġ",
    "<0x41>", "<|im_start|>", "<|im_end|>", "<think>", "</s>", "<s>", "<|eot_id|>", "<bos>", "<end_of_turn>",
    "<|call|>", "<｜end▁of▁sentence｜>", "<unused1>",
]  # fmt: skip
FILES = {
    "prose": "README.md",
    "code": "model/text/tokenizer.py",
    "JSON": "tests/oracles/transformers_answers.json",
    "scripts": "tests/model/text/test_tokenizer_vocabularies.py",
}
"""Long texts."""


def loaded(name: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(vocabulary(name))


@cache
def usual(name: str) -> Any:
    return loaded(name)


@cache
def patched(name: str) -> Any:
    """transformers' tokenizer with fastokens' core."""
    import fastokens

    usual(name)
    fastokens.patch_transformers()
    try:
        tokenizer = loaded(name)
    finally:
        fastokens.unpatch_transformers()
    assert type(tokenizer) is type(usual(name))
    assert type(tokenizer._tokenizer).__module__.startswith("fastokens")
    return tokenizer


@cache
def encoder(name: str) -> TextEncoder:
    renderer = SimpleNamespace(get_tokenizer=lambda: patched(name))
    made = TextEncoder(renderer)
    assert made.direct
    return made


@cache
def texts_of(name: str, *, fast: bool) -> Tokenizer:
    return Tokenizer(patched(name) if fast else usual(name))


def same(name: str, text: str) -> None:
    """Ids, and what is told of each of them."""
    for special in (False, True):
        ids = encoder(name).encode(text, special=special)
        assert ids == usual(name)(text, add_special_tokens=special)["input_ids"]
        for skip in (False, True):
            told, expected = (texts_of(name, fast=fast).stream([], skip, True) for fast in (True, False))
            assert [told(token) for token in ids] == [expected(token) for token in ids]


@family
@each_row("kind", FILES)
def test_long_texts(name: str, kind: str) -> None:
    same(name, (ROOT / FILES[kind]).read_text())


@family
def test_any_texts(name: str) -> None:
    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.sampled_from(WORDS) | st.text(max_size=4), max_size=12))
    def each(words: list[str]) -> None:
        same(name, "".join(words))

    each()


@family
def test_what_tokens_are_called_and_their_bytes(name: str) -> None:
    fast, slow = texts_of(name, fast=True), texts_of(name, fast=False)
    ids = [*range(0, CONFIGS[name]["vocab_size"], 3), *sorted(slow.special_ids)]
    known = [token for token in ids if usual(name)._tokenizer.id_to_token(token) is not None]
    assert fast.special_ids == slow.special_ids
    assert fast.names(known) == slow.names(known)
    assert [fast.piece(token) for token in ids] == [slow.piece(token) for token in ids]
    assert [fast.raw(token) for token in ids] == [slow.raw(token) for token in ids]


def test_what_it_does_not_read_it_refuses() -> None:
    """Vocabularies of SentencePiece that split texts at spaces: a start with it ends."""
    with pytest.raises(ValueError, match="unsupported pre-tokenizer type: Metaspace"):
        patched("llama2")


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
BODIES: dict[str, dict[str, Any]] = {
    "a chat": {"messages": [{"role": "user", "content": "The fox, é 世界"}], "logprobs": True, "top_logprobs": 2},
    "a text": {"prompt": "One  two\n three", "logprobs": 1, "echo": True},
    "JSON": {
        "messages": [{"role": "user", "content": "JSON"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
    },
    "LMI's": {"inputs": "The fox", "parameters": {"details": True, "max_new_tokens": 8}},
}


@pytest.fixture(scope="module")
def server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("fastokens")
    made = model_directory(demo_model, folder / "model", CHAT)
    with running("server", made, folder / "log", environment={"VLLM_USE_FASTOKENS": "1"}) as host:
        assert "patch_transformers: successfully patched" in (folder / "log").read_text()
        yield host


@each_row("kind", BODIES)
def test_answers(kind: str, server: Host, chat_server: Host) -> None:
    """A server's, by this and without it."""
    body = BODIES[kind] if "parameters" in BODIES[kind] else {**BODIES[kind], "temperature": 0, "max_tokens": 16}
    told, expected = (httpx.post(f"{one.url}/invocations", json=body, timeout=60) for one in (server, chat_server))
    assert (told.status_code, expected.status_code) == (200, 200)
    assert told.json() | NEW == expected.json() | NEW


NEW = {"id": "", "created": 0}
"""What each answer has of its own."""
