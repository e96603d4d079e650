"""The trace that a request belongs to: its headers reach the engine where that makes spans, and only there."""

from __future__ import annotations

import json

from lmi.formatters.tracing import with_trace

from ..kit.api.dialects import parse
from ..kit.api.options import make_settings
from ..kit.api.types import Request, Settings
from ..kit.rows import each_row

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACED = make_settings(otlp_traces_endpoint="http://127.0.0.1:4317")


@each_row(
    ("settings", "headers", "trace"),
    [
        (TRACED, {"traceparent": PARENT, "accept": "*/*"}, {"traceparent": PARENT}),
        (TRACED, {"tracestate": "a=1", "traceparent": PARENT}, {"traceparent": PARENT, "tracestate": "a=1"}),
        (TRACED, {"tracestate": "a=1"}, None),
        (TRACED, {}, None),
        (make_settings(), {"traceparent": PARENT}, None),
    ],
)
def test_the_headers(settings: Settings, headers: dict[str, str], trace: dict[str, str] | None) -> None:
    request = Request(json.dumps({"prompt": ["a", "b"]}).encode(), headers=headers)
    call = with_trace(parse("openai", {"prompt": ["a", "b"]}, settings), request, settings)
    assert [generation.trace for generation in call.generations] == [trace, trace]
