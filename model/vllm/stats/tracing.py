"""vLLM's spans of requests (OpenTelemetry), by `otlp_traces_endpoint`: its OutputProcessor, not used here, makes them.

    begin --a sequence is added--> end --a span, to the exporter's thread--> the endpoint

A span has what costs nothing on the way of a token: how long the request took and its tokens, not the first one's time.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ...generation import Generation
from ..library.parts import part

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["Tracing", "tracing"]

log = logging.getLogger(__name__)

FLUSH_MS = 2000
"""Milliseconds that the last spans have when the engine ends."""


class _Begun(NamedTuple):
    generation: Generation
    prompt_tokens: int
    arrival: float
    """Seconds since the epoch."""


class Tracing:
    """One model's. On the event loop."""

    def __init__(self, endpoint: str) -> None:
        """Before the core is started, whose processes get the endpoint by their environment."""
        part("vllm.tracing:init_tracer")("vllm.llm_engine", endpoint)
        self._begun: dict[str, _Begun] = {}
        self._failed = False
        """Whether it has been logged that one could not be made."""

    def begin(self, name: str, generation: Generation, prompt_tokens: int, arrival: float) -> None:
        """A sequence is added, whose prompt was made at `arrival`."""
        self._begun[name] = _Begun(generation, prompt_tokens, arrival)

    def end(self, name: str, tokens: int) -> None:
        """It has ended, with so many tokens. Its response does not depend on what becomes of its span."""
        try:
            self._make(*self._begun.pop(name), tokens)
        except Exception:
            if not self._failed:
                self._failed = True
                log.exception("spans of requests cannot be made")

    def drop(self, name: str) -> None:
        """It was aborted, or has failed: vLLM makes no span of such a one."""
        self._begun.pop(name, None)

    def close(self) -> None:
        """Sends what has not been sent yet."""
        from opentelemetry.trace import get_tracer_provider

        provider: Any = get_tracer_provider()
        provider.force_flush(FLUSH_MS)

    def _make(self, generation: Generation, prompt_tokens: int, arrival: float, tokens: int) -> None:
        names, sampling = part("vllm.tracing:SpanAttributes"), generation.sampling
        attributes: dict[str, Any] = {
            names.GEN_AI_REQUEST_ID: generation.request_id,
            names.GEN_AI_REQUEST_N: sampling.n,
            names.GEN_AI_REQUEST_MAX_TOKENS: sampling.max_tokens,
            names.GEN_AI_REQUEST_TEMPERATURE: sampling.temperature,
            names.GEN_AI_REQUEST_TOP_P: sampling.top_p,
            names.GEN_AI_USAGE_PROMPT_TOKENS: prompt_tokens,
            names.GEN_AI_USAGE_COMPLETION_TOKENS: tokens,
            names.GEN_AI_LATENCY_E2E: time.time() - arrival,
        }
        part("vllm.tracing:instrument_manual")(
            span_name="llm_request",
            start_time=int(arrival * 1e9),
            attributes={name: value for name, value in attributes.items() if value is not None},
            context=part("vllm.tracing:extract_trace_context")(generation.trace),
            kind=part("vllm.tracing:SpanKind").SERVER,
        )


def tracing(config: VllmConfig) -> Tracing | None:
    """Of the model of a VllmConfig, if its spans are wanted."""
    endpoint = config.observability_config.otlp_traces_endpoint
    return None if endpoint is None else Tracing(endpoint)
