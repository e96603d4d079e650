"""Prompts that are far too long: how much of them a tokenizer sees. (tests/model/vllm/test_engine.py has the
engine.)"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi.model.text import prompt_limits as long_prompt
from lmi.model.text.prompt_limits import (
    PIECE,
    SPARE,
    check_prompt,
    check_text,
    first,
    last,
    max_new_tokens_for,
    max_prompt_tokens,
    with_truncation,
)

from ...kit.api.errors import ContextError, ParameterError
from ...kit.api.types import Generation, Sampling
from ...kit.rows import each_row

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
    with pytest.raises(ContextError, match=r"inputs: prompt is too long: more than 32768 tokens > 2047 maximum"):
        check_text("inputs", "a " * 35_000_000, 2047, counted, 2048)
    assert counted.seen <= PIECE


@pytest.mark.parametrize("text", ["a " * 20_000, "a" * 400_000, " a" * 2047])
def test_what_may_fit_is_not_refused(text: str) -> None:
    """A usual text is not even counted, and a long one may have few tokens."""
    counted = Counted()
    check_text("inputs", text, 2047, counted, 2048)
    assert (counted.seen == 0) is (len(text) <= 8 * 2047 + PIECE)


@pytest.mark.parametrize(("more", "refused"), [(0, False), (1, True)])
def test_only_what_is_beyond_twice_the_allowed_number_is_certain(more: int, refused: bool) -> None:
    """A piece's tokens may be some more than they are in the whole."""
    allowed = 100
    counts = iter([SPARE, 2 * allowed, more])
    text = "a" * (3 * PIECE)
    if refused:
        with pytest.raises(ContextError, match=f"more than {SPARE + 2 * allowed} tokens > {allowed} maximum"):
            check_text("inputs", text, allowed, lambda _: next(counts), allowed)
    else:
        check_text("inputs", text, allowed, lambda _: next(counts), allowed)
        assert next(counts, None) is None


@each_row("keep", [1, 1000, 20_000])
@each_row("text", ["some words of a text that goes on, " * 200_000, "ab" * 2_000_000], ids=["words", "one"])
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


@pytest.mark.parametrize(
    ("tokens", "max_tokens", "limit", "overflow", "left"),
    [(10, 5, 10, "refuse", 5), (99, None, None, "refuse", 1), (40, 60, None, "refuse", 60), (41, 60, None, "clip", 59)],
)
def test_the_longest_prompts_that_fit(
    tokens: int, max_tokens: int | None, limit: int | None, overflow: Literal["refuse", "clip"], left: int
) -> None:
    """In a context of 100 tokens; one token more is refused by TOO_LONG below."""
    asked = Generation(request_id="r", prompt="", sampling=Sampling(max_tokens=max_tokens), overflow=overflow)
    assert max_new_tokens_for(asked, tokens, 100, limit) == left


# --- The words by which agents know that a conversation is too long ---


def asked(max_tokens: int | None = None) -> Generation:
    return Generation(request_id="r", prompt="", sampling=Sampling(max_tokens=max_tokens), overflow="refuse")


WITHIN = "this model's maximum context length is 100 tokens"
BY_OPTION = f"option.max_prompt_tokens; {WITHIN}"
TOO_LONG: dict[str, tuple[Callable[[], object], str]] = {
    "context": (
        lambda: max_new_tokens_for(asked(), 100, 100),
        f"prompt: prompt is too long: 100 tokens > 99 maximum ({WITHIN})",
    ),
    "option": (
        lambda: max_new_tokens_for(asked(), 11, 100, 10),
        f"prompt: prompt is too long: 11 tokens > 10 maximum ({BY_OPTION})",
    ),
    "option, by itself": (
        lambda: check_prompt(11, 10, 100),
        f"prompt: prompt is too long: 11 tokens > 10 maximum ({BY_OPTION})",
    ),
    "with max_tokens": (
        lambda: max_new_tokens_for(asked(60), 50, 100),
        f"prompt: prompt is too long: 50 tokens > 40 maximum (before 60 tokens to generate; {WITHIN})",
    ),
    "far too long": (
        lambda: check_text("prompt", "a " * PIECE, 99, Counted(), 100),
        f"prompt: prompt is too long: more than {PIECE // 2} tokens > 99 maximum ({WITHIN})",
    ),
    "far too long, by the option": (
        lambda: check_text("prompt", "a " * PIECE, 10, Counted(), 100),
        f"prompt: prompt is too long: more than {PIECE // 2} tokens > 10 maximum ({BY_OPTION})",
    ),
}

AGENTS = {
    # Claude Code 2.1: it compacts by as many tokens as the two numbers are apart.
    "Claude Code": r"(?i)prompt is too long[^0-9]*(\d+)\s*tokens?\s*>\s*(\d+)",
    # litellm 1.106, litellm_core_utils/exception_mapping_utils.py, is_error_str_context_window_exceeded, and so aider.
    "LiteLLM": "(?i)this model's maximum context length is",
    # langchain-openai 1.7, chat_models/base.py, _handle_openai_bad_request.
    "LangChain": "prompt is too long",
    # vLLM 0.23.0, renderers/params.py: what agents know who were tried with it.
    "vLLM": "(?i)this model's maximum context length is 100 tokens",
}


@each_row("case", TOO_LONG)
def test_agents_know_a_prompt_that_is_too_long(case: str) -> None:
    call, message = TOO_LONG[case]
    with pytest.raises(ContextError) as caught:
        call()
    error = caught.value
    assert (error.message, error.code) == (message, "context_length_exceeded")
    assert error.param == message.partition(":")[0]
    for agent, pattern in AGENTS.items():
        assert re.search(pattern, error.message), agent
    numbers = re.search(AGENTS["Claude Code"], error.message)
    assert numbers
    assert int(numbers[1]) > int(numbers[2]) > 0


def test_no_shorter_prompt_would_help() -> None:
    """An agent that shortened its conversation would do so again and again."""
    with pytest.raises(ParameterError, match=r"^prompt: expected a prompt of at least 1 token, got 0") as caught:
        max_new_tokens_for(asked(), 0, 100)
    assert not isinstance(caught.value, ContextError)
    with pytest.raises(
        ParameterError, match=r"^sampling.max_tokens: expected at most 99 tokens to generate "
    ) as caught:
        max_new_tokens_for(asked(100), 5, 100)
    assert not isinstance(caught.value, ContextError)
