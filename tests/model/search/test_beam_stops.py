"""Stop strings of a beam: found at the token that completes one, whatever else was tried from the same prefix."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi.model.search.beam_stops import Stops

from ...kit.api.engine import Prefix, Tokenizer
from ...kit.api.types import Sampling


class Bytes:
    """Each byte is a token; a character is there with its last one."""

    def stream(self, known: Sequence[int], skip: bool, spaces: bool) -> Callable[[int], str]:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        decoder.decode(bytes(known))
        return lambda token: decoder.decode(bytes([token]))


def found(text: str, stop: tuple[str, ...], least: int, prompt: str = "", others: bytes = b"") -> list[int]:
    """How many tokens of a text there were where a stop string was complete, each time. `others`: tried before each."""
    stops = Stops(cast(Tokenizer, Bytes()), [*prompt.encode()], Sampling(stop=stop, min_tokens=least))
    prefix, ends = Prefix(), list[int]()
    for token in text.encode():
        for other in others:
            stops.follow(prefix, other)
        state, stopped = stops.follow(prefix, token)
        prefix = Prefix((*prefix.tokens, token), state=state)
        if stopped:
            ends.append(len(prefix.tokens))
    return ends


def expected(text: str, stop: tuple[str, ...], least: int) -> list[int]:
    """The same, of the text as far as it goes: a stop string that ends in what the token has added."""
    tokens, ends, before = text.encode(), list[int](), ""
    for length in range(1, len(tokens) + 1):
        so_far = tokens[:length].decode(errors="ignore")
        added = range(len(before) + 1, len(so_far) + 1)
        if length > least and any(so_far[:end].endswith(one) for end in added for one in stop):
            ends.append(length)
        before = so_far
    return ends


@pytest.mark.parametrize(
    ("text", "stop", "least", "ends"),
    [
        ("so bad", ("bad",), 0, [6]),
        ("so bad", ("o b", "ad"), 0, [4, 6]),
        ("bad bad", ("bad",), 3, [7]),
        ("ä", ("ä",), 0, [2]),
        # Of four tokens each, which have no text before the last one.
        ("👋👋", ("👋👋",), 0, [8]),
        ("a👋", ("a👋",), 4, [5]),
        ("aaa", ("aa",), 0, [2, 3]),
        ("a", (), 0, []),
    ],
)
def test_where_one_is_found(text: str, stop: tuple[str, ...], least: int, ends: list[int]) -> None:
    assert expected(text, stop, least) == ends
    assert found(text, stop, least) == ends


words = st.text("aä👋", min_size=1, max_size=3)


@given(
    st.text("abä€👋", max_size=40),
    st.lists(words, max_size=3).map(tuple),
    st.integers(0, 9),
    st.text("ab👋", max_size=40),
)
def test_any_text(text: str, stop: tuple[str, ...], least: int, prompt: str) -> None:
    ends = expected(text, stop, least)
    assert found(text, stop, least, prompt) == ends
    assert found(text, stop, least, prompt, "a👋".encode()) == ends
