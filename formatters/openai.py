"""The OpenAI dialect: chat completions and text completions (specs 000 and 001; wire-decisions: OpenAI).

    openai_chat.py           `messages`, or the path /v1/chat/completions
    openai_completions.py    `prompt`, or the path /v1/completions

An error is `{"error": {"message", "type", "param", "code"}}` with its status, for streamed requests too where nothing
has been sent yet.
"""

from __future__ import annotations

from ..model.errors import LmiError, PayloadError
from ..model.options import Settings
from . import openai_chat, openai_completions
from .base import Answer, Call, Payload, Request, Route
from .fields import refuse_headers
from .openai_models import models
from .openai_reply import answer_of

__all__ = ["CHAT_PATH", "MARK", "NAME", "ROUTES", "TEXT_PATH", "matches", "parse", "refuse"]

NAME: str = "openai"
MARK: str = "messages or prompt"

CHAT_PATH = "/v1/chat/completions"
TEXT_PATH = "/v1/completions"

ROUTES: tuple[Route, ...] = (
    Route(CHAT_PATH),
    Route(TEXT_PATH),
    Route("/v1/models", ("GET",), page=models),
)


def matches(payload: Payload, request: Request, settings: Settings) -> bool:
    """Whether there are `messages`, or a `prompt`."""
    return "messages" in payload or "prompt" in payload


def parse(payload: Payload, request: Request, settings: Settings) -> Call:
    """One generation for a conversation, or one for each prompt."""
    refuse_headers(request)
    if request.path == CHAT_PATH:
        return openai_chat.parse(payload, request, settings)
    if request.path == TEXT_PATH:
        return openai_completions.parse(payload, request, settings)
    if payload.get("messages") is not None:
        return openai_chat.parse(payload, request, settings)
    if payload.get("prompt") is not None:
        return openai_completions.parse(payload, request, settings)
    raise PayloadError("expected a field messages (chat completions) or prompt (text completions)", "messages")


def refuse(error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Answer:
    """The error as JSON, with its status."""
    return answer_of(error)
