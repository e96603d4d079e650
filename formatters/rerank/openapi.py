"""What the dialect takes and gives, for /openapi.json."""

from __future__ import annotations

from ...model.options import Settings
from ..base import JSON, JsonSchema, OpenApi
from ..common.fields import fields_schema
from ..common.kinds import LARGEST_ID
from ..common.schemas import FILLED, STRING, array, objects, one_of
from ..openai.bodies import ErrorBody
from ..openai.messages import messages_schema
from .bodies import ClassifyBody, Prediction, RankBody, Ranked, RankErrorBody, ScoreBody, TeiErrorBody
from .parameters import CLASSIFY_TABLE, PREDICT_TABLE, RERANK_TABLE, SCORE_TABLE, TEI_TABLE
from .scores import FIELDS
from .texts import MAX_TEXTS

__all__ = ["CLASSIFY", "PREDICT", "RERANK", "RERANK_COHERE", "SCORE"]

TEXT = one_of(STRING, objects(["text"], text=STRING))
QUERY = one_of(FILLED, objects(["text"], text=FILLED))
TEXTS = one_of(TEXT, array(TEXT, 1, MAX_TEXTS))
IDS: JsonSchema = array({"type": "integer", "minimum": 0, "maximum": LARGEST_ID}, 1)
FEW = array(STRING, 1, 2)


def _body(required: list[str], **properties: JsonSchema) -> JsonSchema:
    return {"type": "object", "properties": properties, "required": required}


def _rerank(settings: Settings) -> JsonSchema:
    return _body(["query", "documents"], **fields_schema(RERANK_TABLE), query=QUERY, documents=TEXTS)


def _tei_rerank(settings: Settings) -> JsonSchema:
    return _body(["query", "texts"], **fields_schema(TEI_TABLE), query=QUERY, texts=TEXTS)


def _either(settings: Settings) -> JsonSchema:
    """/rerank itself takes both."""
    return one_of(_rerank(settings), _tei_rerank(settings))


def _score(settings: Settings) -> JsonSchema:
    plain = fields_schema(SCORE_TABLE)
    return one_of(*(_body([*names], **plain, **dict.fromkeys(names, TEXTS)) for names in FIELDS))


def _classify(settings: Settings) -> JsonSchema:
    plain = fields_schema(CLASSIFY_TABLE)
    given = one_of(FILLED, array(FILLED, 1, MAX_TEXTS), IDS, array(IDS, 1, MAX_TEXTS))
    return one_of(_body(["input"], **plain, input=given), _body(["messages"], **plain, messages=messages_schema()))


def _predict(settings: Settings) -> JsonSchema:
    fields = fields_schema(PREDICT_TABLE)
    inputs = one_of(FILLED, FEW, array(FEW, 1, MAX_TEXTS))
    return _body(["inputs"], **fields, inputs=inputs, parameters=objects(**fields))


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
    _rerank,
    {JSON: (RankBody,)},
    {JSON: (RankErrorBody,)},
    serves=_pools,
)
SCORE = OpenApi("Scores of pairs of texts", _score, {JSON: (ScoreBody,)}, {JSON: (ErrorBody,)}, serves=_pools)
CLASSIFY = OpenApi("Classes of texts", _classify, {JSON: (ClassifyBody,)}, {JSON: (ErrorBody,)}, serves=_scores)
PREDICT = OpenApi(
    "Classes of texts in the form of Text Embeddings Inference",
    _predict,
    {JSON: (list[Prediction], list[list[Prediction]])},
    {JSON: (TeiErrorBody,)},
    serves=_scores,
)
