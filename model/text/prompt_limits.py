"""How long a prompt may be, and what it leaves for the answer.

Prompts that are far too long are not tokenized whole: that would keep every later request waiting, and fill memory.

    text --check_text--> the text, or ContextError after a part of it
    text --last, first--> a part of it that surely has the tokens that are to be kept

How many tokens a text has only its tokenizer knows: vocabularies have tokens of a hundred characters, and tokenizers
that take a word of any length for one, or white space for none. So long texts are counted piece by piece. A cut makes a
few tokens more at its place and none fewer elsewhere, which twice the allowed number is far beyond.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from ..errors import ContextError, Fault, ParameterError
from ..generation import FITTING, Generation

__all__ = [
    "PIECE",
    "Count",
    "check_ids",
    "check_prompt",
    "check_text",
    "first",
    "last",
    "max_new_tokens_for",
    "max_prompt_tokens",
    "shortened",
    "too_long",
    "with_truncation",
]

Count = Callable[[str], int]
"""How many tokens a text has, special ones not counted."""

PIECE = 1 << 16
"""Characters that are counted at a time."""
CHARACTERS = 8
"""For each allowed token a text may have so many characters before it is counted in pieces: twice a usual one's."""
SPARE = 1024
"""Tokens beyond those that are to be kept, so that what the cut has done to its neighbours is not among these."""

OPTION = "option.max_prompt_tokens"
PROMPT = "prompt"
"""The path of a prompt."""

_BETWEEN = re.compile(r"(?<=\w)\s(?=\w)")
"""Where tokenizers part a text themselves: tokens on either side do not depend on the other one."""


def max_prompt_tokens(context: int, limit: int | None) -> int:
    """The longest prompt, where a context of so many tokens may be filled and option.max_prompt_tokens is `limit`."""
    return context if limit is None else min(context, limit)


def with_truncation(generation: Generation, context: int, limit: int | None) -> Generation:
    """The same; where its prompt is to be cut to what fits (`truncate` -1), with the number of tokens that do.

    That is the context but for max_tokens, or for one token (vLLM, renderers/params.py: max_input_tokens).
    """
    sampling = generation.sampling
    if sampling.truncate != FITTING:
        return generation
    keep = max_prompt_tokens(max(1, context - (sampling.max_tokens or 1)), limit)
    return msgspec.structs.replace(generation, sampling=msgspec.structs.replace(sampling, truncate=keep))


def check_ids(path: str, ids: Sequence[int], vocabulary: int) -> None:
    """Raises ParameterError for token ids that there are not."""
    if ids and not 0 <= min(ids) <= max(ids) < vocabulary:
        foreign = next(token for token in ids if not 0 <= token < vocabulary)
        raise ParameterError.of(path, foreign, f"token ids from 0 to {vocabulary - 1}")


def too_long(path: str, tokens: int | str, most: int, context: int, *reasons: str) -> ContextError:
    """The error for a prompt of more than `most` tokens; `reasons`: why it may not have more, beside the context.

    By these words agents know that they must shorten a conversation, most of which do not look at the code: "prompt is
    too long: N tokens > M maximum" are Anthropic's, "this model's maximum context length is" OpenAI's and vLLM's.
    """
    why = "; ".join((*reasons, f"this model's maximum context length is {context} tokens"))
    return ContextError.because(Fault(path, f"prompt is too long: {tokens} tokens > {most} maximum ({why})"))


def check_prompt(tokens: int, limit: int | None, context: int) -> None:
    """Raises ContextError for a prompt of more than `limit` tokens (option.max_prompt_tokens)."""
    if limit is not None and tokens > limit:
        raise too_long(PROMPT, tokens, limit, context, OPTION)


def max_new_tokens_for(generation: Generation, prompt_tokens: int, context: int, limit: int | None = None) -> int:
    """How many tokens may be generated after a prompt of so many, which may have `limit`; raises ParameterError, and
    ContextError where a shorter prompt would do.

    None, where only the prompt is wanted (Generation.tokenize), of whatever length.
    """
    if generation.tokenize:
        return 0
    check_prompt(prompt_tokens, limit, context)
    left = context - prompt_tokens
    if prompt_tokens < 1:
        raise ParameterError.because(Fault(PROMPT, expected="a prompt of at least 1 token", given="0 tokens"))
    if left < 1:
        raise too_long(PROMPT, prompt_tokens, context - 1, context)
    wanted = generation.sampling.max_tokens
    if wanted is None:
        return left
    if wanted > left and generation.overflow == "refuse":
        if wanted >= context:
            most = f"at most {context - 1} tokens to generate (this model's context is {context} tokens)"
            raise ParameterError.of("sampling.max_tokens", wanted, most)
        raise too_long(PROMPT, prompt_tokens, context - wanted, context, f"before {wanted} tokens to generate")
    return min(wanted, left)


def check_text(path: str, text: str, allowed: int, count: Count, context: int) -> None:
    """Raises ContextError for a text that has more than `allowed` tokens, if it is a long one."""
    if len(text) <= CHARACTERS * allowed + PIECE:
        return
    tokens = 0
    for start in range(0, len(text), PIECE):
        tokens += count(text[start : start + PIECE])
        if tokens > 2 * allowed + SPARE:
            reasons = (OPTION,) if allowed < context - 1 else ()
            raise too_long(path, f"more than {tokens - 1}", allowed, context, *reasons)


def shortened(text: str, keep: int | None, allowed: int, count: Count, context: int, *, start: bool = False) -> str:
    """What is to be tokenized of a text whose last `keep` tokens are wanted, of whose `start` the first, or all.

    Raises ContextError for one that has more than `allowed` tokens, if it is a long one and stays it.
    """
    if keep is not None and keep <= allowed:
        return first(text, keep, count) if start else last(text, keep, count)
    check_text(PROMPT, text, allowed, count, context)
    return text


def last(text: str, keep: int, count: Count) -> str:
    """A part of `text` at its end that has its last `keep` tokens."""
    size = CHARACTERS * keep + PIECE
    while 2 * size < len(text):
        part = text[_between(text, len(text) - size) :]
        if count(part) >= keep + SPARE:
            return part
        size *= 4
    return text


def first(text: str, keep: int, count: Count) -> str:
    """A part of `text` at its beginning that has its first `keep` tokens."""
    size = CHARACTERS * keep + PIECE
    while 2 * size < len(text):
        part = text[: _between(text, size)]
        if count(part) >= keep + SPARE:
            return part
        size *= 4
    return text


def _between(text: str, near: int) -> int:
    """A place soon after `near` where the text may be cut."""
    found = _BETWEEN.search(text, near, near + PIECE // 2)
    return found.start() if found else near
