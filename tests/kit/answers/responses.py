"""Requests for responses and their answers, made of events by hand."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from lmi.formatters.base import JSON, SSE, ParsedRequest, Request, ResponseEncoder
from lmi.formatters.responses import parse
from lmi.model.generation import Conversation

from .events import Told, feed
from .openai import SETTINGS

__all__ = ["SPLIT", "TOOL", "asked", "conversation", "events_of", "reply", "whole"]

SPLIT = msgspec.structs.replace(SETTINGS, tool_call_parser="hermes", reasoning_parser="qwen3")
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}


def asked(given: Any = "hi", **fields: Any) -> ParsedRequest:
    """What a request asks for. `store_`: where responses are kept."""
    store = fields.pop("store_", None)
    return parse({"input": given, **fields}, Request(b"", request_id="7", responses=store), SPLIT)


def conversation(given: Any = "hi", **fields: Any) -> Conversation:
    """What the model is to go on from."""
    (generation,) = asked(given, **fields).generations
    assert isinstance(generation.prompt, Conversation)
    return generation.prompt


def reply(given: Any = "hi", **fields: Any) -> ResponseEncoder:
    """The reply to a request."""
    return asked(given, **fields).reply


def whole(answer: ResponseEncoder, *events: Told) -> Any:
    """An answer that is not streamed."""
    (body,) = feed(answer, *events)
    assert (answer.content_type, answer.status) == (JSON, 200)
    return json.loads(body)


def events_of(answer: ResponseEncoder, *events: Told) -> list[Any]:
    """The events of a stream; each is named as its type says, and numbered."""
    records = feed(answer, *events)
    assert answer.content_type == SSE
    found: list[Any] = []
    for record in records:
        name, data, *ends = record.decode().split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert (name, ends) == (f"event: {event['type']}", ["", ""])
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found
