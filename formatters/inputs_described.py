"""What the dialects of `inputs` take and give, for /openapi.json: LMI's, TGI's, dynamic batches, LMI's embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..model.options import Settings
from .base import JSON, JSON_LINES, SSE, Described, JsonSchema
from .fields import Parameter
from .lmi_bodies import LastLine, TokenLine, TopTokensLine, UnreadableBody
from .lmi_bodies import WholeBody as LmiBody
from .lmi_embeddings import TABLE as EMBEDDING_TABLE
from .lmi_inputs import INPUTS
from .lmi_parameters import ROWS as LMI_ROWS
from .lmi_schemas import schema_of
from .schemas import FILLED, array, fields_schema, nullable, one_of
from .tgi_bodies import ErrorBody as TgiError
from .tgi_bodies import StreamLine
from .tgi_bodies import WholeBody as TgiBody
from .tgi_info import Info
from .tgi_parameters import ROWS as TGI_ROWS

__all__ = ["LMI", "TGI", "TGI_COMPAT", "TGI_INFO", "TGI_STREAM", "TGI_WHOLE", "VECTORS", "lmi_request", "several"]

STREAM: Mapping[str, JsonSchema] = {"stream": {"type": ["boolean", "null"]}}
SEVERAL = one_of(FILLED, array(FILLED, 1, INPUTS))


def _body(inputs: JsonSchema, rows: Iterable[Parameter], more: Mapping[str, JsonSchema] = STREAM) -> JsonSchema:
    parameters = nullable({"type": "object", "properties": fields_schema(rows)})
    properties = {"inputs": inputs, "parameters": parameters, **more}
    return {"type": "object", "properties": properties, "required": ["inputs"]}


def lmi_request(settings: Settings, inputs: JsonSchema = FILLED) -> JsonSchema:
    """`{"inputs", "parameters", "stream"}`, with the parameters of the endpoint's schema."""
    return _body(inputs, LMI_ROWS[schema_of(settings).name].values())


def several(settings: Settings) -> JsonSchema:
    """The same with one text or a list of them."""
    return lmi_request(settings, SEVERAL)


def _tgi_request(settings: Settings) -> JsonSchema:
    return _body(FILLED, TGI_ROWS.values())


def _tgi_own(settings: Settings) -> JsonSchema:
    """Where the path tells whether the answer is streamed, `stream` means nothing."""
    return _body(FILLED, TGI_ROWS.values(), {})


def _embedding_request(settings: Settings) -> JsonSchema:
    beside = fields_schema(EMBEDDING_TABLE)
    return _body(SEVERAL, EMBEDDING_TABLE, {**beside, "stream": {"enum": [False, None]}})


LMI_ERRORS = {JSON: (UnreadableBody, LmiBody, LastLine), JSON_LINES: (LastLine,), SSE: (LastLine,)}
LINES = (TokenLine, TopTokensLine, LastLine)
TGI_ERRORS = {JSON: (TgiError,)}
TGI_LINES = (StreamLine, TgiError)
WHOLE = list[TgiBody]

LMI = Described(
    "Generated text in LMI's form, whole or as a stream",
    lmi_request,
    {JSON: (LmiBody,), JSON_LINES: LINES, SSE: LINES},
    LMI_ERRORS,
    serves=lambda settings: not (settings.embeds or settings.tgi_compat or settings.dynamic_batch),
)
TGI = Described(
    "Generated text in TGI's form, whole or as a stream",
    _tgi_request,
    {JSON: (WHOLE,), JSON_LINES: TGI_LINES, SSE: TGI_LINES},
    # A body of which nobody can tell the dialect is refused in LMI's form.
    {JSON: (TgiError, UnreadableBody)},
    serves=lambda settings: settings.tgi_compat and not settings.embeds,
)
TGI_WHOLE = Described("Generated text as TGI's /generate gives it", _tgi_own, {JSON: (TgiBody,)}, TGI_ERRORS)
TGI_STREAM = Described("A stream of tokens as TGI's /generate_stream gives it", _tgi_own, {SSE: TGI_LINES}, TGI_ERRORS)
TGI_COMPAT = Described(
    "Generated text as TGI's / gives it, whole or as a stream",
    _tgi_request,
    {JSON: (WHOLE,), SSE: TGI_LINES},
    TGI_ERRORS,
)
TGI_INFO = Described("The model and its limits", answers={JSON: (Info,)}, errors=TGI_ERRORS)
VECTORS = Described(
    "Vectors of texts in LMI's form",
    _embedding_request,
    {JSON: (list[list[float]],)},
    {JSON: (UnreadableBody,)},
    serves=lambda settings: settings.embeds,
)
