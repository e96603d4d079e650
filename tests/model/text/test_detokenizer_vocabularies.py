"""Stop strings in texts of real vocabularies: found wherever tokens begin and end, whatever comes with them."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from lmi.model.text.detokenizer import StopFinder

from ...kit.api.engine import Tokenizer
from ...kit.api.types import Token
from ...kit.models.vocabularies import CONFIGS, vocabulary

pytestmark = [pytest.mark.engine, pytest.mark.once]

TEXT = "Sir,\n\n  don't stop: 中文 🦊👩‍👩‍👧 é e\u0301 مرحبا 𠮷!  \ufffd End."


@cache
def made(name: str) -> tuple[Tokenizer, list[int], str]:
    """A tokenizer, the tokens of TEXT, and the text that it makes of them."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(vocabulary(name))
    ids: list[int] = tokenizer.encode(TEXT, add_special_tokens=False)
    return Tokenizer(tokenizer), ids, tokenizer.decode(ids)


@pytest.mark.parametrize("include", [False, True], ids=["left out", "told"])
@pytest.mark.parametrize("name", sorted(CONFIGS.keys() - {"llama3"}))
def test_a_stop_string_ends_the_text_where_it_begins(name: str, *, include: bool) -> None:
    """Any part of the text is one, of one to five characters, and so is what it does not have."""
    tokenizer, ids, whole = made(name)
    for size in (1, 2, 3, 5):
        for start in range(len(whole) - size + 1):
            stop = whole[start : start + size]
            end = whole.index(stop) + (size if include else 0)
            decode = tokenizer.stream([], True, True)
            finder = StopFinder(decode, True, stops=("never", stop), include_stop=include)
            told = ""
            tokens: list[Token] = []
            for token in ids:
                stopped = finder.push(token, raw=tokenizer.raw(token))
                text, more = finder.take()
                told, tokens = told + text, [*tokens, *more]
                assert whole[:end].startswith(told)
                if stopped:
                    break
            text, more = finder.finish()
            assert finder.stop == stop
            assert told + text == whole[:end]
            assert "".join(token.text for token in [*tokens, *more]) == whole[:end]
