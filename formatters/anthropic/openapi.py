"""What the Messages API takes and gives, for /openapi.json.

The plain fields are the table's (request.py); what is read by rules of its own is described as far as a schema can.
"""

from __future__ import annotations

from ...model.options import Settings
from ..base import JSON, SSE, JsonSchema, OpenApi
from ..common.fields import fields_schema
from ..common.schemas import FILLED, STRING, array, nullable, objects, one_of
from ..openai.messages import MAX_MESSAGES
from .blocks import MEDIA_TYPES
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
from .request import FORMS_SCHEMA, TABLE
from .tools import TOOLS_SCHEMA

__all__ = ["COUNT", "MESSAGES"]

TEXT = objects(["type", "text"], type={"const": "text"}, text=STRING)
SOURCE = one_of(
    objects(["type", "media_type", "data"], type={"const": "base64"}, media_type={"enum": [*MEDIA_TYPES]}, data=STRING),
    objects(["type", "url"], type={"const": "url"}, url=FILLED),
)
IMAGE = objects(["type", "source"], type={"const": "image"}, source=SOURCE)
DOCUMENT = objects(
    ["type", "source"],
    type={"const": "document"},
    source=one_of(
        objects(["type", "data"], type={"const": "text"}, data=STRING),
        objects(["type", "content"], type={"const": "content"}, content=one_of(STRING, array(one_of(TEXT, IMAGE), 1))),
    ),
    title=STRING,
    context=STRING,
)
FOUND = objects(
    ["type", "source", "title", "content"],
    type={"const": "search_result"},
    source=STRING,
    title=STRING,
    content=one_of(STRING, array(TEXT, 1)),
)
REFERENCE = objects(["type", "tool_name"], type={"const": "tool_reference"}, tool_name=FILLED)
RESULT = objects(
    ["type", "tool_use_id"],
    type={"const": "tool_result"},
    tool_use_id=FILLED,
    content=one_of(STRING, array(one_of(TEXT, IMAGE, DOCUMENT, FOUND, REFERENCE))),
    is_error={"type": "boolean"},
)
CALL = objects(
    ["type", "id", "name"], type={"const": "tool_use"}, id=FILLED, name=FILLED, input=one_of({"type": "object"}, STRING)
)
THOUGHT = objects(["type", "thinking"], type={"const": "thinking"}, thinking=STRING)
REDACTED = objects(["type"], type={"const": "redacted_thinking"})


def _content(*blocks: JsonSchema) -> JsonSchema:
    return one_of(STRING, array(one_of(*blocks)))


def _message(role: str, *blocks: JsonSchema) -> JsonSchema:
    return objects(["role", "content"], role={"const": role}, content=_content(*blocks))


MESSAGE = one_of(
    _message("user", TEXT, IMAGE, DOCUMENT, FOUND, RESULT),
    _message("assistant", TEXT, THOUGHT, REDACTED, CALL),
    _message("system", TEXT),
)
FORMS: dict[str, JsonSchema] = {
    "system": nullable(_content(TEXT)),
    **{name: nullable(schema) for name, schema in {**TOOLS_SCHEMA, **FORMS_SCHEMA}.items()},
}


def _body(required: list[str]) -> JsonSchema:
    properties = {"messages": array(MESSAGE, 1, MAX_MESSAGES), **fields_schema(TABLE), **FORMS}
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
