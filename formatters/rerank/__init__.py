"""Ranks, scores and classes of texts, of models that generate none: the APIs of Jina, Cohere, vLLM and Text Embeddings
Inference (TEI).

    ranking.py      POST /rerank, /v1/rerank, /v2/rerank: `query` and `documents`; TEI's: `query` and `texts`
    scores.py       POST /score, /v1/score: pairs under one of four pairs of names
    classes.py      POST /classify: `input` or `messages`; TEI's /predict: `inputs`
    texts.py        what texts may be; pairs.py: queries and documents, and the generations that score them
    parameters.py   the fields; bodies.py: the answers and the errors; openapi.py: both, for /openapi.json

Each form has its own clients' errors. A body is found by its fields: `query` beside `documents` or `texts` on every
endpoint, the others only where the model ranks or classifies. A model that embeds ranks and scores too, by the cosine
of two vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...model.errors import LmiError, PayloadError
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, Response
from ..dialect import Dialect, Route, own_response
from ..openai.reply import error_response
from . import classes, ranking, scores
from .bodies import rank_error, tei_error
from .openapi import CLASSIFY, PREDICT, RERANK, RERANK_COHERE, SCORE

__all__ = ["DIALECT", "matches", "parse", "refuse"]


ROUTES: tuple[Route, ...] = (
    Route("/rerank", described=RERANK),
    Route("/v1/rerank", described=RERANK_COHERE),
    Route("/v2/rerank", described=RERANK_COHERE),
    Route("/score", described=SCORE),
    Route("/v1/score", described=SCORE),
    Route("/classify", described=CLASSIFY),
    Route("/predict", described=PREDICT),
)
OPENAPI = (RERANK, SCORE, CLASSIFY, PREDICT)


class Form(NamedTuple):
    """One of the APIs."""

    parse: Callable[[Payload, Request, Settings], ParsedRequest]
    refuse: Callable[[LmiError], Response]


RANKING = Form(ranking.parse, rank_error)
TEI_RANKING = Form(ranking.parse_tei, tei_error)
SCORES = Form(scores.parse, error_response)
CLASSES = Form(classes.parse, error_response)
PREDICTIONS = Form(classes.parse_tei, tei_error)

BY_PATH = {
    "/v1/rerank": RANKING,
    "/v2/rerank": RANKING,
    "/score": SCORES,
    "/v1/score": SCORES,
    "/classify": CLASSES,
    "/predict": PREDICTIONS,
}


def matches(payload: Payload, request: Request, settings: Settings) -> bool:
    """Whether the body is one of these forms without doubt, on a model of this kind."""
    if "query" in payload and ("documents" in payload or "texts" in payload):
        return "messages" not in payload
    if settings.pools and scores.fields_of(payload) is not None:
        return True
    return settings.scores and any(name in payload for name in ("input", "inputs", "messages"))


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """What is to be scored; raises RequestError."""
    form = _form(payload, request)
    if form is None:
        expected = "query with documents or texts (ranks), queries with documents (scores), input or inputs (classes)"
        raise PayloadError(f"expected fields {expected}", "query")
    return form.parse(payload, request, settings)


def refuse(error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
    """The error as the form has it; where that is not known, as rankings have it."""
    return (_form(payload or {}, request) or RANKING).refuse(error)


def _form(payload: Payload, request: Request) -> Form | None:
    if (known := BY_PATH.get(request.path)) is not None:
        return known
    if "texts" in payload:
        return TEI_RANKING
    if request.path == "/rerank" or "query" in payload:
        return RANKING
    if scores.fields_of(payload) is not None:
        return SCORES
    if "input" in payload or "messages" in payload:
        return CLASSES
    return PREDICTIONS if "inputs" in payload else None


DIALECT = Dialect(
    name="rerank",
    body_field="query",
    routes=ROUTES,
    openapi=OPENAPI,
    names_model=True,
    matches=matches,
    marks=None,
    parse=parse,
    refuse=refuse,
    for_formatters=own_response,
    read_file=None,
)
