"""Anthropic's requests and their answers, made of events by hand."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from lmi.formatters.anthropic import parse
from lmi.formatters.anthropic.request import COUNTED
from lmi.formatters.base import JSON, SSE, ParsedRequest, Request, ResponseEncoder
from lmi.model.options import Settings

from .events import Told, feed

__all__ = [
    "ASKED", "REASONING", "SETTINGS", "STRICT", "TOOL", "USER", "call", "events", "fields_of", "joined", "reply",
    "whole",
]  # fmt: skip

SETTINGS = Settings(model_dir="/m", model_id="/m", model_name="served")
REASONING = msgspec.structs.replace(SETTINGS, reasoning_parser="qwen3")
STRICT = msgspec.structs.replace(SETTINGS, unknown_parameters="error")
USER: dict[str, Any] = {"role": "user", "content": "hi"}
ASKED: dict[str, Any] = {"messages": [USER], "max_tokens": 100}
TOOL: dict[str, Any] = {"name": "look", "input_schema": {"type": "object", "properties": {}}}


def fields_of(body: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """What the fields of a body say, one without `max_tokens` too."""
    return COUNTED.read("", body, settings)[0]


def call(settings: Settings = SETTINGS, path: str = "/v1/messages", **fields: Any) -> ParsedRequest:
    """What a request asks for."""
    return parse({**ASKED, **fields}, Request(b"", request_id="req-7", path=path), settings)


def reply(settings: Settings = SETTINGS, **fields: Any) -> ResponseEncoder:
    """Its reply."""
    return call(settings, **fields).reply


def whole(answer: ResponseEncoder, *told: Told) -> Any:
    """An answer that is not streamed."""
    (body,) = feed(answer, *told)
    assert answer.content_type == JSON
    return json.loads(body)


def events(answer: ResponseEncoder, *told: Told) -> list[Any]:
    """The events of a stream, each of which has the name of its type."""
    records = feed(answer, *told)
    assert (answer.finished, answer.content_type) == (True, SSE)
    made: list[Any] = []
    for record in records:
        name, data, *rest = record.decode().split("\n")
        assert rest == ["", ""]
        made.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {made[-1]['type']}"
    return made


DELTAS = {
    "text": ("text_delta",),
    "thinking": ("thinking_delta", "signature_delta"),
    "tool_use": ("input_json_delta",),
}
"""Of each type of block."""


def joined(made: list[Any]) -> Any:
    """The message that a stream's events make up; they come in their order."""
    start, ping, *blocks, ended, last = made
    assert (start["type"], ping, last) == ("message_start", {"type": "ping"}, {"type": "message_stop"})
    message: dict[str, Any] = dict(start["message"])
    content: list[Any] = message["content"]
    inputs = ""
    is_open = False
    for event in blocks:
        if event["type"] == "content_block_start":
            assert (event["index"], is_open) == (len(content), False)
            content.append(event["content_block"])
            is_open, inputs = True, ""
            continue
        assert (event["index"], is_open) == (len(content) - 1, True)
        block = content[-1]
        if event["type"] == "content_block_stop":
            is_open = False
            if block["type"] == "tool_use":
                block["input"] = json.loads(inputs or "{}")
            continue
        assert event["type"] == "content_block_delta"
        (kind, (name, new)) = event["delta"]["type"], list(event["delta"].items())[1]
        assert kind in DELTAS[block["type"]]
        assert new
        if name == "partial_json":
            inputs += new
        else:
            block[name] += new
    assert not is_open
    assert ended["type"] == "message_delta"
    return {**message, **ended["delta"], "usage": ended["usage"]}
