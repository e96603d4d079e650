"""`option.max_answer_bytes`: how long an answer may become that is not streamed, counted while it is made.

Until it is complete such an answer lies in memory, in the engine's process and in the host's, and log-probabilities
make much of little: 128 sequences of 2,000 tokens with 20 likely tokens each are five million entries.
"""

from __future__ import annotations

from ..errors import ParameterError
from ..events import Delta, Event, Started, Token
from ..generation import Generation

__all__ = ["TOKEN", "check_size", "size_of", "too_long", "weight"]

TOKEN = 128
"""Bytes that a token counts that is shown by itself, and each likely token beside it: about twice what it takes as
JSON, and a third of what it takes in memory."""
BARE = 4
"""Bytes that any other token counts."""


def size_of(event: Event, copies: int = 1) -> int:
    """Bytes that an event adds to a response; a prompt is shown in `copies` sequences."""
    if isinstance(event, Delta):
        calls = sum(len(call.arguments) for call in event.calls)
        return len(event.text) + len(event.reasoning) + calls + len(event.vector) + _tokens(event.tokens)
    if isinstance(event, Started):
        return copies * (len(event.text) + _tokens(event.prefill))
    return 0


def weight(generation: Generation) -> int:
    """What each token of an answer counts before its text is known."""
    return TOKEN * (1 + (generation.sampling.logprobs or 0)) if generation.tokens else BARE


def check_size(generation: Generation, prompt_tokens: int, limit: int) -> None:
    """Raises ParameterError where the prompt's log-probabilities alone, which each sequence has, are too much."""
    sampling = generation.sampling
    if sampling.prompt_logprobs is not None:
        size = sampling.n * prompt_tokens * TOKEN * (1 + sampling.prompt_logprobs)
        if size > limit:
            raise too_long(size, limit)


def _tokens(tokens: tuple[Token, ...]) -> int:
    return TOKEN * (len(tokens) + sum(len(token.top) for token in tokens))


def too_long(size: int, limit: int) -> ParameterError:
    """The error of an answer that has come to `size`."""
    return ParameterError(
        f"the response has come to {size} bytes, expected at most {limit} (option.max_answer_bytes; a token that is "
        f"shown counts {TOKEN}, and so does each likely one): ask for fewer or shorter sequences (n, max_tokens), for "
        "fewer log-probabilities or inputs, or for a stream"
    )
