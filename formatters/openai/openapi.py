"""What OpenAI's routes take and give, for /openapi.json; Azure's and the minimal one's are made of it."""

from __future__ import annotations

import msgspec

from ..base import JSON, SSE
from ..dialect import OpenApi
from .bodies import ChatBody, ChatChunk, ErrorBody, TextBody, TextChunk
from .embeddings import ROWS as EMBEDDING_ROWS
from .embeddings import EmbeddingUsage, Entry
from .models import Model, ModelList, Version
from .parameters import CHAT_ROWS, TEXT_ROWS

__all__ = ["CHAT", "EMBEDDINGS", "MODEL", "MODELS", "TEXT", "VERSION"]


class Embedded(msgspec.Struct, frozen=True):
    """The body with the vectors, which the reply puts together from its entries."""

    data: list[Entry]
    model: str
    usage: EmbeddingUsage
    object: str = "list"


ERRORS = {JSON: (ErrorBody,)}

CHAT = OpenApi(
    "A chat completion, whole or as a stream",
    CHAT_ROWS.described,
    {JSON: (ChatBody,), SSE: (ChatChunk, ErrorBody)},
    ERRORS,
)
TEXT = OpenApi(
    "Text completions, whole or as a stream",
    TEXT_ROWS.described,
    {JSON: (TextBody,), SSE: (TextChunk, ErrorBody)},
    ERRORS,
)
EMBEDDINGS = OpenApi(
    "Vectors of texts", EMBEDDING_ROWS.described, {JSON: (Embedded,)}, ERRORS, serves=lambda settings: settings.embeds
)
MODELS = OpenApi("The models that are served", answers={JSON: (ModelList,)}, errors=ERRORS)
MODEL = OpenApi("A model that is served", answers={JSON: (Model,)}, errors=ERRORS)
VERSION = OpenApi("The engine's version", answers={JSON: (Version,)}, errors=ERRORS)
