"""The plain fields of each body. Sources: vLLM 0.23 (entrypoints/pooling), Jina's and Cohere's API references, the
server of Text Embeddings Inference (TEI, router/src/http/types.rs).

A key is a field of Scoring, or a switch of the answer.
"""

from __future__ import annotations

from typing import Any

from ...model.errors import ParameterError
from ...model.options import Settings
from ..base import Payload
from ..common.fields import Parameter, read_rows
from ..common.kinds import LARGEST_ID, SMALLEST, Anything, Boolean, Integer, Text, Tree
from ..common.vllm_fields import UNANSWERED
from ..lmi.embeddings import Side, Truncation

__all__ = [
    "CLASSIFY_TABLE",
    "PREDICT_TABLE",
    "RERANK_TABLE",
    "SCORE_TABLE",
    "TEI_TABLE",
    "TEXT_FIELDS",
    "read_values",
]

ANY_MODEL = (
    # Any model is accepted, the answer carries our name (docs/decisions.md: The model's name).
    Parameter("model", Text(), None),
    Parameter("user", Anything(), None),
    Parameter("request_id", Anything(), None),
    Parameter("priority", Integer(SMALLEST), None),
    Parameter("cache_salt", Anything(), None, default_only=True),
    Parameter("mm_processor_kwargs", Anything(), None, default_only=True),
    # No part of it, but to ignore it would leave a client waiting for events.
    Parameter("stream", Boolean(), False, default_only=True),
)
ACTIVATED = (
    Parameter("use_activation", Boolean(), None, "activation"),
    Parameter("activation", Boolean(), None, "activation"),
    Parameter("truncate_prompt_tokens", Integer(-1, LARGEST_ID), None, "truncate", equivalents={-1: True}),
    Parameter("truncation_side", Text(("left", "right")), "right", "cut"),
)
PAIRS = (
    Parameter("max_tokens_per_query", Integer(0, LARGEST_ID), None, "query_tokens", equivalents={0: None}),
    Parameter("max_tokens_per_doc", Integer(0, LARGEST_ID), None, "document_tokens", equivalents={0: None}),
    Parameter("instruction", Text(), None, "instruction"),
    Parameter("chat_template_kwargs", Tree(), None, "template_arguments"),
)
SCORE_TABLE: tuple[Parameter, ...] = (*ANY_MODEL, *ACTIVATED, *PAIRS)
RERANK_TABLE: tuple[Parameter, ...] = (
    *SCORE_TABLE,
    Parameter("top_n", Integer(0, LARGEST_ID), 0, "top_n"),
    Parameter("return_documents", Boolean(), None, "return_documents"),
    # Cohere's, v1: documents are texts, or objects with a text.
    Parameter("rank_fields", Anything(), ["text"], default_only=True),
    Parameter("max_chunks_per_doc", Anything(), None, default_only=True),
    # Jina's.
    Parameter("return_embeddings", Boolean(), False, default_only=True),
)
CLASSIFY_TABLE: tuple[Parameter, ...] = (
    *ANY_MODEL,
    *ACTIVATED,
    *UNANSWERED,
)
CUT = (
    Parameter("truncate", Truncation(), False, "truncate"),
    Parameter("truncation_direction", Side(), "right", "cut"),
    Parameter("raw_scores", Boolean(), False, "raw_scores"),
)
TEI_TABLE: tuple[Parameter, ...] = (
    *CUT,
    Parameter("return_text", Boolean(), False, "return_text"),
    Parameter("model", Text(), None),
)
PREDICT_TABLE: tuple[Parameter, ...] = (*CUT, Parameter("model", Text(), None))

TEXT_FIELDS = {
    "query", "documents", "texts", "queries", "items", "data_1", "data_2", "text_1", "text_2", "input", "inputs",
    "messages", "parameters",
}  # fmt: skip
"""Fields that are read elsewhere."""


def read_values(payload: Payload, table: tuple[Parameter, ...], settings: Settings) -> dict[str, Any]:
    """What the plain fields say, by key; raises RequestError."""
    plain = {name: value for name, value in payload.items() if name not in TEXT_FIELDS}
    values, names = read_rows(plain, {row.name: row for row in table}, settings)
    if values["truncate"] is None:
        values["truncate"] = False
    elif type(values["truncate"]) is int and values["truncate"] == 0:
        raise ParameterError.of(names["truncate"], 0, "an integer >= 1, or -1")
    return values
