"""The bodies of the answers, typed."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from ...model.errors import (
    ForbiddenError,
    LmiError,
    MediaTypeError,
    NotFoundError,
    OverloadedError,
    RequestError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
)
from ..base import Response, encode
from ..openai.bodies import ErrorObject, error_body

__all__ = [
    "Class",
    "ClassifyBody",
    "Document",
    "Meta",
    "Prediction",
    "RankBody",
    "RankErrorBody",
    "RankResult",
    "Ranked",
    "Score",
    "ScoreBody",
    "TeiErrorBody",
    "Usage",
    "rank_error",
    "tei_error",
]


class Usage(msgspec.Struct, frozen=True):
    """Tokens of all texts."""

    prompt_tokens: int
    total_tokens: int


class Document(msgspec.Struct, frozen=True):
    """A text that was ranked."""

    text: str


class RankResult(msgspec.Struct, frozen=True):
    """A document's place."""

    index: int
    """In the request."""
    relevance_score: float
    document: Document | UnsetType = UNSET


class Meta(msgspec.Struct, frozen=True):
    """What Cohere's client reads beside the results."""

    api_version: dict[str, str]
    billed_units: dict[str, int]


class RankBody(msgspec.Struct, frozen=True):
    """Jina's and Cohere's answer; the best result comes first."""

    id: str
    model: str
    usage: Usage
    results: list[RankResult]
    meta: Meta | UnsetType = UNSET


class Score(msgspec.Struct, frozen=True):
    """Of one pair."""

    index: int
    score: float
    object: str = "score"


class ScoreBody(msgspec.Struct, frozen=True):
    """vLLM's scores, in the order of the request."""

    id: str
    created: int
    model: str
    data: list[Score]
    usage: Usage
    object: str = "list"


class Class(msgspec.Struct, frozen=True):
    """The likeliest class of one input, and the probabilities of all."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class ClassifyBody(msgspec.Struct, frozen=True):
    """vLLM's classes, in the order of the request."""

    id: str
    created: int
    model: str
    data: list[Class]
    usage: Usage
    object: str = "list"


class Ranked(msgspec.Struct, frozen=True):
    """TEI's: a list of them, the best first."""

    index: int
    score: float
    text: str | UnsetType = UNSET


class Prediction(msgspec.Struct, frozen=True):
    """TEI's: a list of them for each input, the likeliest first."""

    score: float
    label: str


class RankErrorBody(msgspec.Struct, frozen=True):
    """OpenAI's error, which vLLM's clients read, and `message`, which Cohere's does."""

    error: ErrorObject
    message: str


class TeiErrorBody(msgspec.Struct, frozen=True):
    """TEI's error."""

    error: str
    error_type: str


TEI_ERRORS: tuple[tuple[type[LmiError], int | None, str], ...] = (
    # What TEI leaves to its web framework keeps its status.
    (MediaTypeError, None, "Validation"),
    (UnauthorizedError, None, "Validation"),
    (ForbiddenError, None, "Validation"),
    (NotFoundError, None, "Validation"),
    (TooLargeError, None, "Validation"),
    (RequestError, 422, "Validation"),
    (OverloadedError, 429, "Overloaded"),
    (UnavailableError, 503, "Unhealthy"),
    (LmiError, 424, "Backend"),
)
"""Status, None being the error's own, and TEI's word for it; the first that fits."""


def rank_error(error: LmiError) -> Response:
    """An error of rankings: JSON with its status."""
    body = RankErrorBody(error_body(error).error, error.message)
    return Response(encode(body), error.status, failure=error)


def tei_error(error: LmiError) -> Response:
    """The same for TEI's clients."""
    status, word = next((status, word) for kind, status, word in TEI_ERRORS if isinstance(error, kind))
    return Response(encode(TeiErrorBody(error.message, word)), status or error.status, failure=error)
