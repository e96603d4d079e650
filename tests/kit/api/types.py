"""What nearly every test speaks of: requests and what they become, events, engines' facts."""

from __future__ import annotations

from typing import Any

from lmi.formatters import Hooks
from lmi.formatters.base import JSON, JSON_LINES, SSE, ParsedRequest, Payload, Request, Response, ResponseEncoder
from lmi.formatters.common.encoder import Encoder
from lmi.formatters.dialect import Dialect, OpenApi, Route, Way
from lmi.model.backend import Backend
from lmi.model.conversation import Message
from lmi.model.engine import EngineInfo, EngineStats, Sink
from lmi.model.events import (
    CallDelta,
    Delta,
    EngineEvent,
    Event,
    Failed,
    Finish,
    FinishReason,
    Prefill,
    Recording,
    Rendered,
    Started,
    Token,
    TopToken,
)
from lmi.model.generation import (
    Beams,
    Conversation,
    Embedding,
    Generation,
    Prompt,
    Sampling,
    Scoring,
    StructuredOutput,
    Transcription,
    nth_seed,
)
from lmi.model.media.parts import MediaFile
from lmi.model.options import Settings
from lmi.model.text.template_messages import template_messages

__all__ = [
    "JSON",
    "JSON_LINES",
    "SSE",
    "Backend",
    "Beams",
    "CallDelta",
    "Conversation",
    "Delta",
    "Dialect",
    "Embedding",
    "Encoder",
    "EngineEvent",
    "EngineInfo",
    "EngineStats",
    "Event",
    "Failed",
    "Finish",
    "FinishReason",
    "Generation",
    "Hooks",
    "MediaFile",
    "Message",
    "OpenApi",
    "ParsedRequest",
    "Payload",
    "Prefill",
    "Prompt",
    "Recording",
    "Rendered",
    "Request",
    "Response",
    "ResponseEncoder",
    "Route",
    "Sampling",
    "Scoring",
    "Settings",
    "Sink",
    "Started",
    "StructuredOutput",
    "Token",
    "TopToken",
    "Transcription",
    "Way",
    "nth_seed",
    "said",
    "template_messages",
]  # fmt: skip


def said(prompt: object) -> list[dict[str, Any]]:
    """The messages of a conversation as templates take them."""
    assert isinstance(prompt, Conversation)
    return template_messages(prompt.messages)
