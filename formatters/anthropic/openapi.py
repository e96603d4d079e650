"""What the Messages API takes and gives, for /openapi.json.

The plain fields are the table's (request.py); what is read by rules of its own is described as far as a schema can.
"""

from __future__ import annotations

from ...model.options import Settings
from ..base import JSON, SSE, JsonSchema, OpenApi
from ..common.fields import fields_schema
from ..common.schemas import nullable
from .blocks import MESSAGES_SCHEMA, SYSTEM
from .bodies import (
    BlockDelta,
    BlockStart,
    BlockStop,
    ErrorBody,
    MessageBody,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    TokenCount,
)
from .request import TABLE
from .tools import TOOLS_SCHEMA

__all__ = ["COUNT", "MESSAGES"]

FORMS: dict[str, JsonSchema] = {
    name: nullable(schema) for name, schema in {"system": SYSTEM.schema, **TOOLS_SCHEMA}.items()
}


def _body(required: list[str]) -> JsonSchema:
    properties = {"messages": MESSAGES_SCHEMA, **fields_schema(TABLE), **FORMS}
    return {"type": "object", "properties": properties, "required": ["messages", *required]}


def messages_schema(settings: Settings) -> JsonSchema:
    """The body of a request for a message."""
    return _body(["max_tokens"])


def count_schema(settings: Settings) -> JsonSchema:
    """The body of a request to count tokens."""
    return _body([])


ERRORS = {JSON: (ErrorBody,)}
EVENTS = (MessageStart, Ping, BlockStart, BlockDelta, BlockStop, MessageDelta, MessageStop, ErrorBody)

MESSAGES = OpenApi(
    "A message of Anthropic's API, whole or as a stream", messages_schema, {JSON: (MessageBody,), SSE: EVENTS}, ERRORS
)
COUNT = OpenApi("How many tokens a message's prompt has", count_schema, {JSON: (TokenCount,)}, ERRORS)
