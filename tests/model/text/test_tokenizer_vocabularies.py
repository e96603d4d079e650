"""Texts of tokens with the vocabularies of models: what transformers makes of all ids at once, however they come.

transformers' own text differs in two places, in which no text is lost here:

    within a character     at the end of the ids it writes U+FFFD, for one that the next tokens would complete
    rows of byte tokens    (Gemma, Llama 2) of which one is no UTF-8: it writes U+FFFD for all of them, valid ones too

The `DecodeStream` of its core, which vLLM's detokenizer is (0.26 to 0.32), differs from these in more:

    a prompt that ends within a character, or with U+FFFD: the answer begins with the whole prompt
    an answer that ends with U+FFFD: not told, nor what came with it in a token
    such a row of byte tokens: characters before the invalid byte are told, those after it are lost
    spaces_between_special_tokens=False: added tokens in a row, of line breaks and spaces too, are told by their names
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest

from lmi.model.text.tokenizer import Tokenizer

from ...kit.models.vocabularies import CONFIGS, vocabulary
from ...kit.rows import each_row

pytestmark = [pytest.mark.engine, pytest.mark.once]

BYTE_TOKENS = ["gemma3", "llama2"]
"""The vocabularies with tokens for single bytes; the others are made of bytes throughout."""
family = pytest.mark.parametrize("name", sorted(CONFIGS.keys() - {"llama3"}))
"""Llama 3's is that of Llama 3.1."""

TEXTS = {
    "spaces": "Hello  world, don't . ! ?   \t\ty",
    "leading space": " leading",
    "spaces alone": "   ",
    "lines": "\n\n  x\n\n\n\n  \r\ny\n",
    "code": "def f(x):\n    return x  # é\r\n",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ✌🏽🦊",
    "cjk": "中文字符，日本語のテキスト、한국어 𠮷𩸽",
    "arabic": "مرحبا بالعالم، لَا إِلٰهَ",
    "combining marks": "e\u0301 n\u0303 a\u030a\u0323 Z\u0351\u036b\u0343",
    "indic": "ไทย हिन्दी தமிழ் বাংলা",
    "invisible": "\u200b\u200d\ufeff\xa0",
    "control": "a\x00b\x1f\x7f",
    "replacement characters": "\ufffd real \ufffd\ufffd",
    "names of bytes": "<0x41> <0xE4> <0x4>",
    "letters of vocabularies": "▁ ▁▁ Ġ Ċ Ã",
    "special tokens": "a <|im_end|><|im_end|> <end_of_turn> <eos><|eot_id|><｜end▁of▁sentence｜> </s> b",
    "added tokens": "<think>\n\n</think>\n\n<tool_call>{}</tool_call><unused1><unused2>",
}


@cache
def transformers(name: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(vocabulary(name))


@cache
def ours(name: str) -> Tokenizer:
    return Tokenizer(transformers(name))


def encode(name: str, text: str) -> list[int]:
    ids: list[int] = transformers(name).encode(text, add_special_tokens=False)
    return ids


def pieces(name: str, ids: list[int], size: int, *, skip: bool = False, prompt: list[int] | None = None) -> list[str]:
    """What becomes certain with so many tokens at a time."""
    decode = ours(name).stream(prompt or [], skip, True)
    if size == 1:
        return [decode(token) for token in ids]
    return [decode(ids[at : at + size]) for at in range(0, len(ids), size)]


def of_bytes(name: str, raw: bytes) -> list[int]:
    """Tokens of single bytes."""
    tokenizer = transformers(name)
    if name in BYTE_TOKENS:
        return [tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in raw]
    alone = {ours(name).raw(token): token for token in encode(name, bytes(range(256)).decode("latin-1"))}
    alone |= {known: token for token in range(512) if len(known := ours(name).raw(token)) == 1}
    return [alone[bytes([byte])] for byte in raw]


@family
@each_row("text", TEXTS.values(), ids=TEXTS)
def test_text_is_that_of_transformers(name: str, text: str) -> None:
    ids = encode(name, text)
    for skip in (False, True):
        whole = transformers(name).decode(ids, skip_special_tokens=skip)
        for size in (1, 3, len(ids)):
            assert "".join(pieces(name, ids, size, skip=skip)) == whole


@family
@each_row("text", TEXTS.values(), ids=TEXTS)
def test_text_is_told_as_soon_as_its_characters_are_complete(name: str, text: str) -> None:
    ids = encode(name, text)
    whole = transformers(name).decode(ids)
    told, raw = "", b""
    for token, piece in zip(ids, pieces(name, ids, 1), strict=True):
        told, raw = told + piece, raw + ours(name).raw(token)
        seen = raw.decode(errors="ignore")
        assert told == (seen[1:] if name == "llama2" and seen.startswith(" ") else seen)
        assert whole.startswith(told)


@family
def test_a_text_after_a_prompt_is_what_it_adds_to_it(name: str) -> None:
    whole = "The fox 🦊 says: 中文 \ufffd and \ufffd\ufffd 𠮷 yes."
    ids = encode(name, whole)
    assert whole.endswith(transformers(name).decode(ids))
    raw = [ours(name).raw(token) for token in ids]
    for cut in range(1, len(ids)):
        # A character that the prompt begins is the answer's.
        before = b"".join(raw[:cut]).decode(errors="ignore")
        expected = b"".join(raw).decode().removeprefix(before)
        for size in (1, 3, len(ids)):
            assert "".join(pieces(name, ids[cut:], size, prompt=ids[:cut])) == expected


ROWS = {
    "a character": (b"\xe4\xb8\xad", "中", "中"),
    "two": ("中é".encode(), "中é", "中é"),
    "the beginning of one": (b"\xe4\xb8", "��", "�"),
    "the end of one": (b"\xb8\xad", "��", "��"),
    "what is none": (b"\xff\xc0", "��", "��"),
    "one, and the beginning of another": (b"\xe4\xb8\xad\xe4\xb8", "中��", "中�"),
    "one within others": (b"a\xffb", "a�b", "a�b"),
    "a surrogate": (b"\xed\xa0\x80", "���", "���"),
    "too long a form": (b"\xc0\xaf", "��", "��"),
    "four bytes, the last missing": (b"\xf0\x9f\xa6", "���", "�"),
}
"""Bytes; their text, where each is a token's own, and where vocabularies are made of bytes."""
TOLD_LESS = {"one, and the beginning of another", "one within others"}
"""Of which transformers tells no character, where each is a token's own."""


@family
@each_row("row", ROWS)
def test_bytes_that_are_no_text_become_replacement_characters(name: str, row: str) -> None:
    raw, of_tokens, of_vocabulary = ROWS[row]
    ids = [*encode(name, "so"), *of_bytes(name, raw), *encode(name, "x")]
    text = "".join(pieces(name, ids, 1))
    assert text.replace(" ", "") == "so" + (of_tokens if name in BYTE_TOKENS else of_vocabulary) + "x"
    for size in (2, 3, len(ids)):
        assert "".join(pieces(name, ids, size)) == text
    by_transformers = transformers(name).decode(ids)
    if name in BYTE_TOKENS and row in TOLD_LESS:
        assert by_transformers.replace(" ", "") == "so" + "�" * len(raw) + "x"
    else:
        assert text == by_transformers


@family
def test_an_unfinished_character_is_left_out_and_not_what_is_before_it(name: str) -> None:
    for end, told in ((b"\xff", "�"), (b"\xef\xbf\xbd", "�"), (b"\xe4", ""), (b"\xf0\x9f\xa6", ""), (b" \xe4", " ")):
        ids = [*encode(name, "so"), *of_bytes(name, end)]
        for size in (1, 3, len(ids)):
            assert "".join(pieces(name, ids, size)) == f"so{told}"


@family
def test_any_tokens_give_the_text_of_transformers(name: str) -> None:
    """As random weights choose them: also those that are no tokens, and special ones."""
    chosen = random.Random(4)
    size = CONFIGS[name]["vocab_size"]
    special = sorted(ours(name).special_ids)
    for _ in range(150):
        ids = [chosen.choice(special) if chosen.random() < 0.2 else chosen.randrange(size) for _ in range(24)]
        for skip in (False, True):
            text = "".join(pieces(name, ids, 1, skip=skip))
            assert "".join(pieces(name, ids, 5, skip=skip)) == "".join(pieces(name, ids, 24, skip=skip)) == text
            by_transformers = transformers(name).decode(ids, skip_special_tokens=skip)
            if name not in BYTE_TOKENS:
                assert by_transformers in (text, f"{text}�")
            elif "�" not in by_transformers:
                assert text == by_transformers


@family
def test_spaces_between_special_tokens(name: str) -> None:
    """None of these vocabularies has any; tokens of spaces and line breaks are text, in a row as well."""
    for text in TEXTS.values():
        ids = encode(name, text)
        decode = ours(name).stream([], False, False)
        assert "".join(map(decode, ids)) == transformers(name).decode(ids)


@family
def test_tokens_by_themselves(name: str) -> None:
    """Of log-probabilities: a token's text and bytes, with the space that it begins with."""
    tokenizer = transformers(name)
    before = encode(name, "x")
    start = len(tokenizer.decode(before))
    for token in (*range(0, CONFIGS[name]["vocab_size"], 5), *sorted(ours(name).special_ids)):
        piece, raw = ours(name).piece(token), ours(name).raw(token)
        assert piece == tokenizer.decode([*before, token])[start:]
        if "�" not in piece:
            assert raw == piece.encode()
    for text in TEXTS.values():
        ids = encode(name, text)
        joined = b"".join(map(ours(name).raw, ids)).decode()
        assert (joined.removeprefix(" ") if name == "llama2" else joined) == tokenizer.decode(ids)
