"""OpenAI requests and their answers, made of events by hand."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from lmi.formatters.base import JSON, SSE, ParsedRequest, Request, ResponseEncoder
from lmi.formatters.openai import parse
from lmi.model.options import Settings

from .events import Told, feed

__all__ = [
    "CHAT", "DETAILS", "DONE", "PROMPT_DETAILS", "REASONING", "SETTINGS", "STRICT", "TEXT", "TOOLS", "USAGE", "USER",
    "call", "chunks", "reply", "whole",
]  # fmt: skip

SETTINGS = Settings(model_dir="/opt/ml/model", model_id="/opt/ml/model", model_name="/opt/ml/model")
REASONING = msgspec.structs.replace(SETTINGS, reasoning_parser="deepseek_r1")
STRICT = msgspec.structs.replace(SETTINGS, unknown_parameters="error")
USER: dict[str, Any] = {"role": "user", "content": "hi"}
CHAT: dict[str, Any] = {"messages": [USER]}
TEXT: dict[str, Any] = {"prompt": "hi"}
DONE = b"data: [DONE]\n\n"
TOOLS = [{"type": "function", "function": {"name": "get_weather"}}]
USAGE: dict[str, Any] = {"stream_options": {"include_usage": True}}

PROMPT_DETAILS = {"prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0}}
"""Of a complete response, too."""
DETAILS = {
    **PROMPT_DETAILS,
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
}
"""The streaming document, Final Chunk with Usage (docs/decisions.md: Usage)."""
PROMPT_DETAILS = {"prompt_tokens_details": DETAILS["prompt_tokens_details"]}
"""Those of an answer on /invocations that is not streamed."""
INVOCATIONS, CHATS, COMPLETIONS = "/invocations", "/v1/chat/completions", "/v1/completions"


def reply(settings: Settings = SETTINGS, path: str = INVOCATIONS, **fields: Any) -> ResponseEncoder:
    """The reply to a chat request."""
    return parse({**CHAT, **fields}, Request(b"", path=path), settings).reply


def call(path: str = INVOCATIONS, **fields: Any) -> ParsedRequest:
    """What a text completion request asks for."""
    return parse({**TEXT, **fields}, Request(b"", request_id="7", path=path), SETTINGS)


def whole(answer: ResponseEncoder, *events: Told) -> Any:
    """An answer that is not streamed."""
    (body,) = feed(answer, *events)
    assert answer.content_type == JSON
    return json.loads(body)


def chunks(answer: ResponseEncoder, *events: Told) -> list[Any]:
    """The chunks of a stream, which ends with [DONE], once."""
    records = feed(answer, *events)
    assert (answer.finished, answer.content_type, records[-1]) == (True, SSE, DONE)
    assert all(re.fullmatch(rb"data: [^\n]+\n\n", record) for record in records)
    return [json.loads(record.removeprefix(b"data: ")) for record in records[:-1]]
