"""The OpenAI dialect: chat and text completions, embeddings.

    chat.py           `messages`, or the path /v1/chat/completions; its answers: chat_reply.py
    completions.py    `prompt`, or the path /v1/completions; its answers: completions_reply.py
    embeddings.py     `input`, or `messages` of a model that embeds, or the path /v1/embeddings, with its answers
    parameters.py     the fields; messages.py, tools.py: the forms of a chat's
    subset.py         which fields another dialect takes that has this reader
    reply.py          what the answers share; bodies.py, logprobs.py: their bodies
    models.py         GET /v1/models, /v1/models/{id}, /version
    openapi.py        what is taken and given, for /openapi.json

An error is `{"error": {"message", "type", "param", "code"}}` with its status, for streamed requests too where nothing
has been sent yet.
"""

from __future__ import annotations

from ...model.errors import LmiError, PayloadError
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, Response
from ..dialect import Dialect, Route, own_response
from . import chat as openai_chat
from . import completions as openai_completions
from . import embeddings as openai_embeddings
from .models import MODEL_PATH, model, models, version
from .openapi import CHAT, EMBEDDINGS, MODEL, MODELS, TEXT, VERSION
from .reply import error_response

__all__ = [
    "CHAT_PATH",
    "DIALECT",
    "EMBEDDINGS_PATH",
    "TEXT_PATH",
    "parse",
    "refuse",
]


CHAT_PATH = "/v1/chat/completions"
TEXT_PATH = "/v1/completions"
EMBEDDINGS_PATH = "/v1/embeddings"

ROUTES: tuple[Route, ...] = (
    Route(CHAT_PATH, parse=openai_chat.parse, described=CHAT),
    Route(TEXT_PATH, parse=openai_completions.parse, described=TEXT),
    Route(EMBEDDINGS_PATH, parse=openai_embeddings.parse, described=EMBEDDINGS),
    Route("/v1/models", ("GET",), page=models, described=MODELS),
    Route(MODEL_PATH, ("GET",), page=model, described=MODEL),
    Route("/version", ("GET",), page=version, described=VERSION),
)
OPENAPI = (CHAT, TEXT, EMBEDDINGS)


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation for a conversation, or one for each prompt or input, by the body."""
    if payload.get("messages") is not None:
        if settings.embeds:
            return openai_embeddings.parse(payload, request, settings)
        return openai_chat.parse(payload, request, settings)
    if payload.get("prompt") is not None:
        return openai_completions.parse(payload, request, settings)
    if payload.get("input") is not None:
        return openai_embeddings.parse(payload, request, settings)
    expected = "messages (chat completions), prompt (text completions) or input (embeddings)"
    raise PayloadError(f"expected a field {expected}", "messages")


def refuse(error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
    """The error as JSON, with its status."""
    return error_response(error)


DIALECT = Dialect(
    name="openai",
    body_field="messages, prompt or input",
    routes=ROUTES,
    openapi=OPENAPI,
    names_model=True,
    matches=None,
    marks=frozenset(("messages", "prompt", "input")),
    parse=parse,
    refuse=refuse,
    for_formatters=own_response,
    read_file=None,
)
