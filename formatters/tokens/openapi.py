"""What the routes take and give, for /openapi.json."""

from __future__ import annotations

from ...model.options import Settings
from ..base import JSON, JsonSchema, OpenApi
from ..common.fields import fields_schema
from ..common.kinds import LARGEST_ID
from ..common.schemas import STRING, array, nullable
from ..openai.bodies import ErrorBody
from ..openai.messages import messages_schema
from ..openai.openapi import FORMS as CHAT_FORMS
from .reply import Detokenized, Tokenized
from .request import DETOKENIZE_TABLE, FORMS, TOKENIZE_TABLE

__all__ = ["DETOKENIZE", "TOKENIZE"]


def tokenize_schema(settings: Settings) -> JsonSchema:
    """The body of a request for tokens."""
    forms = {name: nullable(schema) for name, schema in CHAT_FORMS.items() if name in FORMS}
    fields = {"prompt": STRING, "messages": messages_schema(), **forms, **fields_schema(TOKENIZE_TABLE)}
    return {
        "type": "object",
        "properties": fields,
        "oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}],
    }


def detokenize_schema(settings: Settings) -> JsonSchema:
    """The body of a request for their text."""
    ids = array({"type": "integer", "minimum": 0, "maximum": LARGEST_ID})
    return {"type": "object", "properties": {**fields_schema(DETOKENIZE_TABLE), "tokens": ids}, "required": ["tokens"]}


def _never(settings: Settings) -> bool:
    """No body is theirs without the path, or a request that says so."""
    return False


ERRORS = {JSON: (ErrorBody,)}
TOKENIZE = OpenApi("The tokens of a prompt or a chat", tokenize_schema, {JSON: (Tokenized,)}, ERRORS, serves=_never)
DETOKENIZE = OpenApi("The text of tokens", detokenize_schema, {JSON: (Detokenized,)}, ERRORS, serves=_never)
