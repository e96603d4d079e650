"""What OpenAI's routes take and give, for /openapi.json; Azure's and the minimal one's are made of it.

The plain fields are the tables' (parameters.py); the forms that are read by rules of their own are told here as
far as a schema can tell them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from ...model.options import Settings
from ..base import JSON, SSE, JsonSchema, OpenApi
from ..common.fields import fields_schema
from ..common.guides import GUIDES
from ..common.images import DETAILS
from ..common.kinds import LARGEST_ID
from ..common.schemas import FILLED, STRING, array, nullable, objects, one_of
from .bodies import ChatBody, ChatChunk, ErrorBody, TextBody, TextChunk
from .chat import DOCUMENTS
from .completions import CHOICES
from .embeddings import INPUTS, EmbeddingUsage, Entry
from .embeddings import TABLE as EMBEDDING_TABLE
from .messages import MAX_MESSAGES, PARTS
from .models import ModelList
from .parameters import CHAT_TABLE, TEXT_TABLE
from .tools import TOOLS

__all__ = ["CHAT", "EMBEDDINGS", "MODELS", "TEXT", "chat_schema", "messages_schema"]

GUIDES_SCHEMA = {name: nullable(guide.schema) for name, guide in GUIDES.items()}
ANY_OBJECT: JsonSchema = {"type": "object"}
IDS: JsonSchema = array({"type": "integer", "minimum": 0, "maximum": LARGEST_ID}, 1)

IMAGE = one_of(FILLED, objects(["url"], url=FILLED, detail={"enum": [*DETAILS]}))
FUNCTION_CALL = objects(["name"], name=FILLED, arguments=STRING)
TOOL_CALL: JsonSchema = {
    "type": "object",
    # The type may be left out, but it may not be null.
    "properties": {"id": FILLED, "type": {"const": "function"}, "function": FUNCTION_CALL},
    "required": ["id", "function"],
}

FUNCTION = objects(["name"], name=FILLED, description=STRING, parameters=ANY_OBJECT, strict={"type": "boolean"})
TOOL = objects(["type", "function"], type={"const": "function"}, function=FUNCTION)


def _choice(words: Iterable[str], named: JsonSchema) -> JsonSchema:
    return one_of({"enum": [*words]}, named)


NAMED = objects(["name"], name=FILLED)

FORMS: Mapping[str, JsonSchema] = {
    "tools": array(TOOL, most=TOOLS),
    "tool_choice": _choice(("none", "auto", "required"), objects(["type"], type={"const": "function"}, function=NAMED)),
    "functions": array(FUNCTION, most=TOOLS),
    "function_call": _choice(("none", "auto"), NAMED),
    "modalities": array({"const": "text"}),
    "documents": array(ANY_OBJECT, most=DOCUMENTS),
}
"""Of CHAT_FORMS, but for the messages."""


def _part(kinds: Iterable[str]) -> JsonSchema:
    """A part of a message's content."""
    told: dict[str, JsonSchema] = {
        "text": objects(["type", "text"], type={"const": "text"}, text=STRING),
        "refusal": objects(["type", "refusal"], type={"const": "refusal"}, refusal=STRING),
        "image_url": objects(["image_url"], type={"const": "image_url"}, image_url=IMAGE, detail={"enum": [*DETAILS]}),
    }
    return one_of(*(told[kind] for kind in kinds))


def messages_schema(roles: Iterable[str] = tuple(PARTS), part: JsonSchema | None = None) -> JsonSchema:
    """A list of messages from some roles. `part`: what parts are in a dialect that has other ones."""
    listed: list[JsonSchema] = []
    for role in roles:
        content = one_of(STRING, array(part or _part(PARTS[role]), 1))
        required, more = {
            "assistant": (
                [],
                {
                    "tool_calls": array(TOOL_CALL),
                    "function_call": {},
                    "refusal": STRING,
                    "reasoning_content": STRING,
                    "reasoning": STRING,
                },
            ),
            "tool": (["content", "tool_call_id"], {"tool_call_id": FILLED}),
            "function": (["content", "name"], {"name": FILLED}),
        }.get(role, (["content"], {}))
        fields: dict[str, JsonSchema] = {"role": {"const": role}, "content": content, "name": STRING, **more}
        listed.append(objects(["role", *required], **fields))
    return array(one_of(*listed), 1, MAX_MESSAGES)


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
    given = one_of(FILLED, array(FILLED, 1, INPUTS), IDS, array(IDS, 1, INPUTS))
    return {"type": "object", "properties": {**fields_schema(EMBEDDING_TABLE), "input": given}, "required": ["input"]}


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
