"""What OpenAI's routes take and give, for /openapi.json; Azure's and the minimal one's are made of it.

The plain fields are the tables' (parameters.py); the forms that are read by rules of their own are described here as
far as a schema can describe them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from ...model.options import Settings
from ..base import JSON, SSE, JsonSchema, OpenApi
from ..common.fields import fields_schema
from ..common.guides import GUIDES
from ..common.kinds import LARGEST_ID
from ..common.schemas import FILLED, STRING, array, nullable, one_of
from .bodies import ChatBody, ChatChunk, ErrorBody, TextBody, TextChunk
from .chat import DOCUMENTS
from .completions import CHOICES
from .embeddings import INPUTS, EmbeddingUsage, Entry
from .embeddings import TABLE as EMBEDDING_TABLE
from .messages import messages_schema
from .models import Model, ModelList, Version
from .parameters import CHAT_TABLE, TEXT_TABLE
from .tools import TOOLS_SCHEMA

__all__ = ["CHAT", "EMBEDDINGS", "MODEL", "MODELS", "TEXT", "VERSION", "chat_schema"]

GUIDES_SCHEMA = {name: nullable(guide.schema) for name, guide in GUIDES.items()}
ANY_OBJECT: JsonSchema = {"type": "object"}
IDS: JsonSchema = array({"type": "integer", "minimum": 0, "maximum": LARGEST_ID}, 1)

FORMS: Mapping[str, JsonSchema] = {
    **TOOLS_SCHEMA,
    "modalities": array({"const": "text"}),
    "documents": array(ANY_OBJECT, le=DOCUMENTS),
}
"""Of CHAT_FORMS, but for the messages."""


def chat_schema(settings: Settings, messages: JsonSchema | None = None, refused: Collection[str] = ()) -> JsonSchema:
    """The body of a chat request, without the fields that a dialect of its own answers refuses."""
    more = {name: nullable(schema) for name, schema in FORMS.items()}
    told = {"messages": messages or messages_schema(), **fields_schema(CHAT_TABLE), **more, **GUIDES_SCHEMA}
    properties = {name: schema for name, schema in told.items() if name not in refused}
    return {"type": "object", "properties": properties, "required": ["messages"]}


def text_schema(settings: Settings) -> JsonSchema:
    """The body of a request for text completions."""
    prompt = one_of(STRING, array(STRING, 1, CHOICES), IDS, array(IDS, 1, CHOICES))
    properties = {"prompt": prompt, **fields_schema(TEXT_TABLE), **GUIDES_SCHEMA}
    return {"type": "object", "properties": properties, "required": ["prompt"]}


def embedding_schema(settings: Settings) -> JsonSchema:
    """The body of a request for vectors."""
    plain = fields_schema(EMBEDDING_TABLE)
    given = one_of(FILLED, array(FILLED, 1, INPUTS), IDS, array(IDS, 1, INPUTS))
    return one_of(
        {"type": "object", "properties": {**plain, "input": given}, "required": ["input"]},
        {"type": "object", "properties": {**plain, "messages": messages_schema()}, "required": ["messages"]},
    )


class Embedded(msgspec.Struct, frozen=True):
    """The body with the vectors, which the reply puts together from its entries."""

    data: list[Entry]
    model: str
    usage: EmbeddingUsage
    object: str = "list"


ERRORS = {JSON: (ErrorBody,)}

CHAT = OpenApi(
    "A chat completion, whole or as a stream", chat_schema, {JSON: (ChatBody,), SSE: (ChatChunk, ErrorBody)}, ERRORS
)
TEXT = OpenApi(
    "Text completions, whole or as a stream", text_schema, {JSON: (TextBody,), SSE: (TextChunk, ErrorBody)}, ERRORS
)
EMBEDDINGS = OpenApi(
    "Vectors of texts", embedding_schema, {JSON: (Embedded,)}, ERRORS, serves=lambda settings: settings.embeds
)
MODELS = OpenApi("The models that are served", answers={JSON: (ModelList,)}, errors=ERRORS)
MODEL = OpenApi("A model that is served", answers={JSON: (Model,)}, errors=ERRORS)
VERSION = OpenApi("The engine's version", answers={JSON: (Version,)}, errors=ERRORS)
