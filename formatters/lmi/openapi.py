"""What LMI's dialect takes and gives, for /openapi.json, embeddings too; dynamic batches and TGI's dialect build on
it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...model.options import Settings
from ..base import JSON, JSON_LINES, SSE, JsonSchema, OpenApi
from ..common.fields import Parameter, fields_schema
from ..common.schemas import FILLED, array, nullable, one_of
from .bodies import LastLine, TokenLine, TopTokensLine, UnreadableBody, WholeBody
from .embeddings import TABLE as EMBEDDING_TABLE
from .inputs import INPUTS
from .parameters import ROWS as LMI_ROWS
from .schemas import schema_of

__all__ = ["LMI", "VECTORS", "inputs_schema", "lmi_request", "several"]

STREAM: Mapping[str, JsonSchema] = {"stream": {"type": ["boolean", "null"]}}
SEVERAL = one_of(FILLED, array(FILLED, 1, INPUTS))


def inputs_schema(inputs: JsonSchema, rows: Iterable[Parameter], more: Mapping[str, JsonSchema] = STREAM) -> JsonSchema:
    """A body of `inputs`, `parameters` as `rows` have them, and `more`."""
    parameters = nullable({"type": "object", "properties": fields_schema(rows)})
    properties = {"inputs": inputs, "parameters": parameters, **more}
    return {"type": "object", "properties": properties, "required": ["inputs"]}


def lmi_request(settings: Settings, inputs: JsonSchema = FILLED) -> JsonSchema:
    """`{"inputs", "parameters", "stream"}`, with the parameters of the endpoint's schema."""
    return inputs_schema(inputs, LMI_ROWS[schema_of(settings).name].values())


def several(settings: Settings) -> JsonSchema:
    """The same with one text or a list of them."""
    return lmi_request(settings, SEVERAL)


def _embedding_request(settings: Settings) -> JsonSchema:
    beside = fields_schema(EMBEDDING_TABLE)
    return inputs_schema(SEVERAL, EMBEDDING_TABLE, {**beside, "stream": {"enum": [False, None]}})


LMI_ERRORS = {JSON: (UnreadableBody, WholeBody, LastLine), JSON_LINES: (LastLine,), SSE: (LastLine,)}
LINES = (TokenLine, TopTokensLine, LastLine)

LMI = OpenApi(
    "Generated text in LMI's form, whole or as a stream",
    lmi_request,
    {JSON: (WholeBody,), JSON_LINES: LINES, SSE: LINES},
    LMI_ERRORS,
)
VECTORS = OpenApi(
    "Vectors of texts in LMI's form",
    _embedding_request,
    {JSON: (list[list[float]],)},
    {JSON: (UnreadableBody,)},
    serves=lambda settings: settings.embeds,
)
