"""Prompts that are far too long: how much of them a tokenizer sees. (tests/model/vllm/test_engine.py has the
engine.)"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi.model.text import prompt_limits as long_prompt
from lmi.model.text.prompt_limits import PIECE, SPARE, check_text, first, last, max_prompt_tokens, with_truncation

from ...kit.api.errors import ContextError
from ...kit.api.types import Generation, Sampling

WORDS = re.compile(r" ?[a-z]+|\S|\s")


class Counted:
    """A tokenizer that counts what it is given."""

    def __init__(self) -> None:
        self.seen = 0

    def tokens(self, text: str) -> list[str]:
        return WORDS.findall(text)

    def __call__(self, text: str) -> int:
        self.seen += len(text)
        return len(self.tokens(text))


def test_a_long_prompt_is_refused_after_a_part_of_it() -> None:
    counted = Counted()
    with pytest.raises(ContextError, match=r"inputs: expected a prompt of at most 2047 tokens .* got more: 70000000 "):
        check_text("inputs", "a " * 35_000_000, 2047, counted)
    assert counted.seen <= PIECE


@pytest.mark.parametrize("text", ["a " * 20_000, "a" * 400_000, " a" * 2047])
def test_what_may_fit_is_not_refused(text: str) -> None:
    """A usual text is not even counted, and a long one may have few tokens."""
    counted = Counted()
    check_text("inputs", text, 2047, counted)
    assert (counted.seen == 0) is (len(text) <= 8 * 2047 + PIECE)


@pytest.mark.parametrize(("more", "refused"), [(0, False), (1, True)])
def test_only_what_is_beyond_twice_the_allowed_number_is_certain(more: int, refused: bool) -> None:
    """A piece's tokens may be some more than they are in the whole."""
    allowed = 100
    counts = iter([SPARE, 2 * allowed, more])
    text = "a" * (3 * PIECE)
    if refused:
        with pytest.raises(ContextError, match=f"the first {3 * PIECE} have {SPARE + 2 * allowed + 1} tokens"):
            check_text("inputs", text, allowed, lambda _: next(counts))
    else:
        check_text("inputs", text, allowed, lambda _: next(counts))
        assert next(counts, None) is None


@pytest.mark.parametrize("keep", [1, 1000, 20_000])
@pytest.mark.parametrize(
    "text", ["some words of a text that goes on, " * 200_000, "ab" * 2_000_000], ids=["words", "one"]
)
def test_the_part_that_is_kept(text: str, keep: int) -> None:
    """The same tokens as of the whole text, of a part that has hardly more."""
    counted = Counted()
    whole = counted.tokens(text)
    end, beginning = last(text, keep, counted), first(text, keep, counted)
    assert text.endswith(end)
    assert text.startswith(beginning)
    if text.startswith("some"):
        assert counted.tokens(end)[-keep:] == whole[-keep:]
        assert counted.tokens(beginning)[:keep] == whole[:keep]
        assert max(len(end), len(beginning)) < 2 * (8 * keep + PIECE)
        assert counted.seen < 6 * (8 * keep + PIECE)
    else:
        # One word: it has one token wherever it is cut, so that no part is known to have enough.
        assert end == beginning == text


@given(st.text(alphabet="ab ,", max_size=60), st.integers(1, 10))
def test_any_text(text: str, keep: int) -> None:
    """With every size made small, so that cuts are near to what is kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_prompt, "PIECE", 4)
        patch.setattr(long_prompt, "CHARACTERS", 2)
        patch.setattr(long_prompt, "SPARE", 2)
        counted = Counted()
        whole = counted.tokens(text)
        assert counted.tokens(last(text, keep, counted))[-keep:] == whole[-keep:]
        assert counted.tokens(first(text, keep, counted))[:keep] == whole[:keep]


def test_the_smaller_limit_counts() -> None:
    assert max_prompt_tokens(2047, None) == 2047
    assert max_prompt_tokens(2047, 50) == 50
    assert max_prompt_tokens(50, 2047) == 50


@pytest.mark.parametrize(
    ("truncate", "max_tokens", "limit", "kept"),
    [(-1, None, None, 99), (-1, 40, None, 60), (-1, 40, 50, 50), (-1, 500, None, 1), (7, 40, None, 7)],
)
def test_a_truncation_to_what_fits(truncate: int, max_tokens: int | None, limit: int | None, kept: int) -> None:
    """Of a context of 100 tokens."""
    sampling = Sampling(truncate=truncate, max_tokens=max_tokens)
    asked = Generation(request_id="r", prompt="text", sampling=sampling)
    assert with_truncation(asked, 100, limit).sampling.truncate == kept
