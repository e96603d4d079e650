"""The bodies of LMI's answers, typed (docs/decisions.md: LMI details).

    WholeBody          an answer that is not streamed
    TokenLine          a line of a stream, or a TopTokensLine; the last one is a LastLine
    UnreadableBody     of a payload that could not be read

Beyond the documents, and only where they are asked for: the likeliest tokens of each position. `top_tokens` is as in
djl_python's answers and TGI's, `prompt_logprobs` as in vLLM's and so in OpenAI's dialects.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from ...model.events import Token, TopToken
from ..openai.logprobs import PromptLogprobs
from .status import REFUSED

__all__ = [
    "BestOfSequence",
    "Details",
    "LastLine",
    "TokenLine",
    "TokenObject",
    "TopTokensLine",
    "UnreadableBody",
    "WholeBody",
    "token_objects",
]


class TokenObject(msgspec.Struct, frozen=True, gc=False):
    """LMI's schema, Token. `special_token` is true where there is no real token: in errors."""

    id: int
    text: str
    log_prob: float | None
    special_token: bool | UnsetType = UNSET


class BestOfSequence(msgspec.Struct, frozen=True):
    """LMI's schema, BestOfSequence."""

    generated_text: str
    finish_reason: str
    generated_tokens: int
    tokens: list[TokenObject]
    top_tokens: list[list[TokenObject]] | UnsetType = UNSET


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """LMI's schema, Details. Null in errors; `tokens` only in whole answers, `prefill` only where it was asked for."""

    finish_reason: str
    generated_tokens: int | None = None
    inputs: str | None = None
    tokens: list[TokenObject] | UnsetType | None = UNSET
    top_tokens: list[list[TokenObject]] | UnsetType = UNSET
    """Of each token the likeliest ones in its place, likeliest first: with `logprobs`, and as `tokens`."""
    prefill: list[TokenObject] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    """With `prompt_logprobs` of at least 1."""
    best_of_sequences: list[BestOfSequence] | UnsetType = UNSET
    """All but the likeliest, likeliest first."""


class WholeBody(msgspec.Struct, frozen=True):
    """The body of an answer that is not streamed."""

    generated_text: str
    details: Details | UnsetType = UNSET
    error: str | UnsetType = UNSET


class TokenLine(msgspec.Struct, frozen=True, gc=False):
    """Any line of a stream but the last."""

    token: TokenObject


class TopTokensLine(msgspec.Struct, frozen=True, gc=False):
    """The same with `logprobs`: a struct of its own, for a field that is not there costs time at every token too."""

    token: TokenObject
    top_tokens: list[TokenObject]
    """The likeliest in the token's place, likeliest first."""


class LastLine(msgspec.Struct, frozen=True, kw_only=True):
    """The last line of a stream."""

    token: TokenObject
    top_tokens: list[TokenObject] | UnsetType = UNSET
    generated_text: str
    details: Details | UnsetType = UNSET
    error: str | UnsetType = UNSET


class UnreadableBody(msgspec.Struct, frozen=True):
    """The body of an answer to a payload that could not be read."""

    error: str
    code: int = REFUSED


def token_objects(tokens: Iterable[Token | TopToken]) -> list[TokenObject]:
    """Tokens of the prompt, of the answer, or the likeliest ones of a position."""
    return [TokenObject(token.id, token.text, token.logprob) for token in tokens]
