"""W3C's trace context: the headers by which a request's span becomes part of its client's trace.

They go on to the engine only where it makes spans: `option.otlp_traces_endpoint`, an argument of vLLM's.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from ..model.options import Settings
from .base import ParsedRequest, Request

__all__ = ["with_trace"]

HEADERS = ("traceparent", "tracestate")


def with_trace(call: ParsedRequest, request: Request, settings: Settings) -> ParsedRequest:
    """The call whose generations know the trace that the request belongs to."""
    if "otlp_traces_endpoint" not in settings.engine_arguments or "traceparent" not in request.headers:
        return call
    trace = {name: request.headers[name] for name in HEADERS if name in request.headers}
    generations = tuple(msgspec.structs.replace(generation, trace=trace) for generation in call.generations)
    return replace(call, generations=generations)
