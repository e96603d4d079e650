"""What /v1/responses takes and gives, for /openapi.json."""

from __future__ import annotations

from typing import get_args

from ...model.options import Settings
from ..base import JSON, SSE, JsonSchema, OpenApi
from ..common.fields import fields_schema
from ..common.schemas import nullable
from ..openai.bodies import ErrorBody
from .bodies import ResponseBody
from .counting import InputTokens
from .events import Event
from .items import INPUT_SCHEMA
from .parameters import FORMS_SCHEMA, TABLE
from .stored import Deleted, ItemList
from .tools import TOOLS_SCHEMA

__all__ = ["COUNT", "CREATE", "DELETE", "ITEMS", "NOT_SERVED", "RETRIEVE"]


def _request(settings: Settings) -> JsonSchema:
    forms = {name: nullable(schema) for name, schema in {**TOOLS_SCHEMA, **FORMS_SCHEMA}.items()}
    properties = {"input": INPUT_SCHEMA, **fields_schema(TABLE), **forms}
    return {"type": "object", "properties": properties, "required": ["input"]}


ERRORS = {JSON: (ErrorBody,)}
CREATE = OpenApi(
    "A response, whole or as a stream of events", _request, {JSON: (ResponseBody,), SSE: get_args(Event)}, ERRORS
)
COUNT = OpenApi("How many tokens a response's prompt would have", _request, {JSON: (InputTokens,)}, ERRORS)
RETRIEVE = OpenApi("A response that is kept", answers={JSON: (ResponseBody,)}, errors=ERRORS)
ITEMS = OpenApi(
    "What a response that is kept answered",
    answers={JSON: (ItemList,)},
    errors=ERRORS,
    query={"order": {"enum": ["asc", "desc"]}},
)
NOT_SERVED = OpenApi("Not served: always an error", answers={}, errors=ERRORS)
DELETE = OpenApi("Forgets a response", answers={JSON: (Deleted,)}, errors=ERRORS)
