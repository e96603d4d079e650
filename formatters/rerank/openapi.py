"""What the dialect takes and gives, for /openapi.json."""

from __future__ import annotations

from ...model.options import Settings
from ..base import JSON
from ..common.schemas import one_of
from ..dialect import JsonSchema, OpenApi
from ..openai.bodies import ErrorBody
from .bodies import ClassifyBody, Prediction, RankBody, Ranked, RankErrorBody, ScoreBody, TeiErrorBody
from .parameters import CLASSIFY_ROWS, PREDICT_ROWS, RERANK_ROWS, SCORE_ROWS, TEI_ROWS

__all__ = ["CLASSIFY", "PREDICT", "RERANK", "RERANK_COHERE", "SCORE"]


def _either(settings: Settings) -> JsonSchema:
    """/rerank itself takes both."""
    return one_of(RERANK_ROWS.schema, TEI_ROWS.schema)


def _score(settings: Settings) -> JsonSchema:
    return one_of(*(rows.schema for rows in SCORE_ROWS.values()))


def _pools(settings: Settings) -> bool:
    return settings.pools


def _scores(settings: Settings) -> bool:
    return settings.scores


RERANK = OpenApi(
    "Texts ranked by a query, in Jina's form or in that of Text Embeddings Inference",
    _either,
    {JSON: (RankBody, list[Ranked])},
    {JSON: (RankErrorBody, TeiErrorBody)},
    serves=_pools,
)
RERANK_COHERE = OpenApi(
    "Texts ranked by a query, as Jina and Cohere have it",
    RERANK_ROWS.described,
    {JSON: (RankBody,)},
    {JSON: (RankErrorBody,)},
    serves=_pools,
)
SCORE = OpenApi("Scores of pairs of texts", _score, {JSON: (ScoreBody,)}, {JSON: (ErrorBody,)}, serves=_pools)
CLASSIFY = OpenApi(
    "Classes of texts", CLASSIFY_ROWS.described, {JSON: (ClassifyBody,)}, {JSON: (ErrorBody,)}, serves=_scores
)
PREDICT = OpenApi(
    "Classes of texts in the form of Text Embeddings Inference",
    PREDICT_ROWS.described,
    {JSON: (list[Prediction], list[list[Prediction]])},
    {JSON: (TeiErrorBody,)},
    serves=_scores,
)
