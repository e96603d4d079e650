"""vLLM's spans of requests (OpenTelemetry), by `otlp_traces_endpoint`: its OutputProcessor, not used here, makes them.

    begin --a sequence is added--> end --a span, to the exporter's thread--> the endpoint

A span has what costs nothing on the way of a token: how long the request took and its tokens, not the first one's time.
Its attributes have the names of OpenTelemetry's semantic conventions for generative AI (1.40, gen-ai-spans), and beside
them those that vLLM's own server gives.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from ...adapters.adapter import name_of_key
from ...generation import Conversation, Generation
from ..library.parts import part

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from ...events import Finish

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

    def __init__(self, endpoint: str, model: str) -> None:
        """Before the core is started, whose processes get the endpoint by their environment. `model`: its name."""
        part("vllm.tracing:init_tracer")("vllm.llm_engine", endpoint)
        self._model = model
        self._begun: dict[str, _Begun] = {}
        self._failed = False
        """Whether it has been logged that one could not be made."""

    def begin(self, name: str, generation: Generation, prompt_tokens: int, arrival: float) -> None:
        """A sequence is added, whose prompt was made at `arrival`."""
        self._begun[name] = _Begun(generation, prompt_tokens, arrival)

    def end(self, name: str, finish: Finish) -> None:
        """It has ended. Its response does not depend on what becomes of its span."""
        try:
            self._make(*self._begun.pop(name), finish)
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

    def _make(self, generation: Generation, prompt_tokens: int, arrival: float, finish: Finish) -> None:
        names, sampling = part("vllm.tracing:SpanAttributes"), generation.sampling
        operation = "chat" if isinstance(generation.prompt, Conversation) else "text_completion"
        model = name_of_key(generation.adapter) if generation.adapter else self._model
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "vllm",
            "gen_ai.request.model": model,
            "gen_ai.request.choice.count": None if sampling.n == 1 else sampling.n,
            "gen_ai.request.max_tokens": sampling.max_tokens,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.request.top_k": sampling.top_k,
            "gen_ai.request.frequency_penalty": sampling.frequency_penalty,
            "gen_ai.request.presence_penalty": sampling.presence_penalty,
            "gen_ai.request.seed": sampling.seed,
            "gen_ai.request.stop_sequences": sampling.stop or None,
            "gen_ai.request.stream": generation.stream,
            "gen_ai.response.finish_reasons": ("stop" if finish.reason == "eos" else finish.reason,),
            "gen_ai.usage.input_tokens": prompt_tokens,
            "gen_ai.usage.output_tokens": finish.generated_tokens,
            "gen_ai.usage.reasoning.output_tokens": finish.reasoning_tokens or None,
            names.GEN_AI_REQUEST_ID: generation.request_id,
            names.GEN_AI_REQUEST_N: sampling.n,
            names.GEN_AI_USAGE_PROMPT_TOKENS: prompt_tokens,
            names.GEN_AI_USAGE_COMPLETION_TOKENS: finish.generated_tokens,
            names.GEN_AI_LATENCY_E2E: time.time() - arrival,
        }
        part("vllm.tracing:instrument_manual")(
            span_name=f"{operation} {model}",
            start_time=int(arrival * 1e9),
            attributes={name: value for name, value in attributes.items() if value is not None},
            context=part("vllm.tracing:extract_trace_context")(generation.trace),
            kind=part("vllm.tracing:SpanKind").SERVER,
        )


def tracing(config: VllmConfig) -> Tracing | None:
    """Of the model of a VllmConfig, if its spans are wanted."""
    endpoint, names = config.observability_config.otlp_traces_endpoint, config.model_config.served_model_name
    served = names[0] if isinstance(names, list) else names
    return None if endpoint is None else Tracing(endpoint, str(served))
