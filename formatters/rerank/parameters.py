"""The fields of each body. Sources: vLLM 0.23 (entrypoints/pooling), Jina's and Cohere's API references, the
server of Text Embeddings Inference (TEI, router/src/http/types.rs).

A key is a field of Scoring, or a switch of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.errors import ParameterError
from ...model.options import Settings
from ..base import Payload
from ..common.fields import Parameter, Table, add_values, harmless, unserved
from ..common.kinds import LARGEST_ID, SMALLEST, Anything, Boolean, Integer, Text, Tree
from ..common.prompts import Prompts
from ..common.vllm_fields import UNANSWERED
from ..lmi.embeddings import Side, Truncation
from ..openai.parameters import CHAT_ROWS
from .texts import MAX_TEXTS, Inputs, Query, Texts

__all__ = [
    "CLASSIFY_ROWS", "CLASSIFY_TABLE", "PREDICT_ROWS", "PREDICT_TABLE", "RERANK_ROWS", "RERANK_TABLE", "SCORE_ROWS",
    "SCORE_TABLE", "SIDES", "TEI_ROWS", "TEI_TABLE", "read_values",
]  # fmt: skip

ANY_MODEL = (
    # Any model is accepted, the answer carries our name (docs/decisions.md: The model's name).
    Parameter("model", Text(), None),
    *harmless("user", "request_id"),
    Parameter("priority", Integer(SMALLEST), None),
    *unserved("cache_salt"),
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
SCORE_TABLE: tuple[Parameter, ...] = (*ANY_MODEL, *unserved("mm_processor_kwargs"), *ACTIVATED, *PAIRS)
RERANK_TABLE: tuple[Parameter, ...] = (
    *SCORE_TABLE,
    Parameter("top_n", Integer(0, LARGEST_ID), 0, "top_n"),
    Parameter("return_documents", Boolean(), None, "return_documents"),
    # Cohere's, v1: documents are texts, or objects with a text.
    Parameter("rank_fields", Anything(), ["text"], default_only=True),
    *unserved("max_chunks_per_doc"),
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

QUERY = Parameter("query", Query(), None, "query")
RERANK_ROWS = Table((*RERANK_TABLE, QUERY, Parameter("documents", Texts(), None, "documents")), ("query", "documents"))
TEI_ROWS = Table((*TEI_TABLE, QUERY, Parameter("texts", Texts(), None, "documents")), ("query", "texts"))
SIDES = (("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2"))
"""What the two sides of scores may be called."""
SCORE_ROWS: Mapping[tuple[str, str], Table] = {
    (one, other): Table(
        (*SCORE_TABLE, Parameter(one, Texts(), None, "queries"), Parameter(other, Texts(), None, "documents")),
        (one, other),
    )
    for one, other in SIDES
}
CLASSIFY_ROWS = Table(
    (*CLASSIFY_TABLE, Parameter("input", Prompts(MAX_TEXTS), None, "input"), CHAT_ROWS["messages"]),
    either=("input", "messages"),
)
PREDICT_ROWS = Table(
    (
        *PREDICT_TABLE,
        Parameter("inputs", Inputs(), None, "inputs"),
        # Hugging Face's clients put the fields there.
        Parameter("parameters", Table(PREDICT_TABLE), None, "parameters"),
    ),
    ("inputs",),
)


def read_values(payload: Payload, table: Table, settings: Settings) -> dict[str, Any]:
    """What the fields say, by key; raises RequestError."""
    values, names = table.read("", payload, settings)
    if (parameters := values.get("parameters")) is not None:
        add_values(values, names, *parameters)
    if values["truncate"] is None:
        values["truncate"] = False
    elif type(values["truncate"]) is int and values["truncate"] == 0:
        raise ParameterError.of(names["truncate"], 0, "an integer >= 1, or -1")
    return values
