"""The bodies of TGI's answers, typed (text-generation-inference, router/src/lib.rs and docs/openapi.json).

    [WholeBody], WholeBody    an answer that is not streamed: in an array, but on /generate
    StreamLine                a token of a stream
    ErrorBody                 any error, in the middle of a stream too

What TGI always writes is there, null where there is nothing to say; what it leaves out may be UNSET.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from ...model.errors import (
    EngineError,
    ForbiddenError,
    LmiError,
    MediaTypeError,
    NotFoundError,
    OverloadedError,
    RequestError,
    TimeLimitError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
)
from ...model.events import Token, TopToken
from ..openai.logprobs import PromptLogprobs

__all__ = [
    "INCOMPLETE",
    "BestOfSequence",
    "Details",
    "ErrorBody",
    "PrefillToken",
    "Rendering",
    "StreamDetails",
    "StreamLine",
    "TokenObject",
    "WholeBody",
    "error_body",
    "prefill_token",
    "token_object",
    "top_tokens",
]


class TokenObject(msgspec.Struct, frozen=True, gc=False):
    """A generated token."""

    id: int
    text: str
    logprob: float | None
    special: bool


class PrefillToken(msgspec.Struct, frozen=True, gc=False):
    """A token of the prompt; the first one has no log-probability."""

    id: int
    text: str
    logprob: float | None


class BestOfSequence(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence that was not the best."""

    generated_text: str
    finish_reason: str
    generated_tokens: int
    seed: int | None
    prefill: list[PrefillToken]
    tokens: list[TokenObject]
    top_tokens: list[list[TokenObject]] | UnsetType = UNSET


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """Details of a whole answer."""

    finish_reason: str
    generated_tokens: int
    inputs: str | UnsetType = UNSET
    """LMI's own (its schema, Response with TGI compatibility); not on TGI's own routes."""
    seed: int | None
    """What the tokens were drawn with; null where the likeliest was taken."""
    prefill: list[PrefillToken]
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    """As in LMI's details, with its parameter of that name."""
    tokens: list[TokenObject]
    best_of_sequences: list[BestOfSequence] | UnsetType = UNSET
    top_tokens: list[list[TokenObject]] | UnsetType = UNSET


class StreamDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Details of a streamed answer."""

    finish_reason: str
    generated_tokens: int
    inputs: str | UnsetType = UNSET
    """As in Details."""
    seed: int | None
    input_length: int
    """Tokens of the prompt."""
    prefill: list[PrefillToken] | UnsetType = UNSET
    """LMI's own, as `prompt_logprobs` is: only with `option.tgi_compat`, and where they are asked for."""
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class WholeBody(msgspec.Struct, frozen=True):
    """A whole answer."""

    generated_text: str
    details: Details | UnsetType = UNSET


class StreamLine(msgspec.Struct, frozen=True, gc=False):
    """A line of a stream; only the last one has a text."""

    index: int
    """From 1."""
    token: TokenObject
    top_tokens: list[TokenObject] | UnsetType = UNSET
    generated_text: str | None = None
    details: StreamDetails | None = None


class ErrorBody(msgspec.Struct, frozen=True):
    """Any error."""

    error: str
    error_type: str


def token_object(token: Token) -> TokenObject:
    """A token; unlike the text, it shows what it is where it is special."""
    text = token.text
    if token.special and not text:
        text = token.raw.decode(errors="replace")
    return TokenObject(token.id, text, token.logprob, token.special)


def prefill_token(token: Token) -> PrefillToken:
    """A token of the prompt."""
    return PrefillToken(token.id, token.text, token.logprob)


def top_tokens(token: Token) -> list[TokenObject]:
    """The most likely tokens at a token's place."""
    return [_top_token(top) for top in token.top]


def _top_token(top: TopToken) -> TokenObject:
    return TokenObject(top.id, top.text, top.logprob, top.special)


Rendering = tuple[int, str, str]
"""Status, error_type, and what the message begins with."""

INCOMPLETE: Rendering = (500, "incomplete_generation", "Incomplete generation: ")
"""Of a generation that was cut off."""

ERRORS: tuple[tuple[type[LmiError], Rendering], ...] = (
    # These TGI leaves to its web framework.
    (MediaTypeError, (MediaTypeError.status, MediaTypeError.code, "")),
    (UnauthorizedError, (UnauthorizedError.status, UnauthorizedError.code, "")),
    (ForbiddenError, (ForbiddenError.status, ForbiddenError.code, "")),
    (NotFoundError, (NotFoundError.status, NotFoundError.code, "")),
    (TooLargeError, (TooLargeError.status, TooLargeError.code, "")),
    (RequestError, (422, "validation", "Input validation error: ")),
    (OverloadedError, (429, "overloaded", "Model is overloaded: ")),
    # To be tried again, unlike 424.
    (UnavailableError, (503, "generation", "")),
    (TimeLimitError, (504, "generation", "Request failed during generation: ")),
    (EngineError, (424, "generation", "Request failed during generation: ")),
    (LmiError, (424, "generation", "")),
)
"""By class, the first that fits (router/src/infer/mod.rs, InferError; router/src/server.rs, its statuses)."""


def error_body(error: LmiError, rendering: Rendering | None = None) -> tuple[int, ErrorBody]:
    """The status and the body of an error."""
    status, kind, said = rendering or next(shown for known, shown in ERRORS if isinstance(error, known))
    return status, ErrorBody(said + error.message, kind)
