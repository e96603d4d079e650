"""Values as the bytes of an answer: whole bodies, JSON lines, server-sent events. Others import these from base.py."""

from __future__ import annotations

import msgspec

__all__ = ["JSON", "JSON_LINES", "SSE", "encode", "event_record", "line_record", "named_record"]

JSON = "application/json"
JSON_LINES = "application/jsonlines"
SSE = "text/event-stream"

encode = msgspec.json.Encoder().encode
"""A value as JSON, UTF-8; what is not finite becomes null."""


def line_record(value: object) -> bytes:
    """`value` as one JSON document on a line of its own."""
    return encode(value) + b"\n"


def event_record(value: object) -> bytes:
    """`value` as one server-sent event: one `data: ` line, ended by LF LF (docs/decisions.md: Server-sent events)."""
    return b"data: " + encode(value) + b"\n\n"


def named_record(name: bytes, value: object) -> bytes:
    """`value` as one server-sent event of a type: an `event: ` line, then as `event_record` has it."""
    return b"event: " + name + b"\ndata: " + encode(value) + b"\n\n"
