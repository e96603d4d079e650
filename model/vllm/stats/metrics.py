"""vLLM's own metrics, under its names, by its own PrometheusStatLogger.

    first scrape --> VllmMetrics;   then each EngineCoreOutputs --note--> its counters;   scrape --render--> text

Before the first scrape nothing is counted: who does not scrape does not pay. So counters begin there, as they do when a
process begins. Only what is counted here is shown: vLLM registers all that it has.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..library.parts import part
from .requests import CountedRequests

if TYPE_CHECKING:
    from prometheus_client import Metric
    from vllm.config import VllmConfig

__all__ = ["VllmMetrics"]

NAMES = frozenset({
    "cache_config_info", "num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason",
    "kv_cache_usage_perc", "prefix_cache_queries", "prefix_cache_hits", "external_prefix_cache_queries",
    "external_prefix_cache_hits", "num_preemptions", "prompt_tokens", "prompt_tokens_by_source",
    "prompt_tokens_cached", "generation_tokens", "iteration_tokens_total",
    "time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds", "request_success",
    "request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
    "request_inference_time_seconds", "request_time_per_output_token_seconds", "request_prompt_tokens",
    "request_generation_tokens", "request_max_num_generation_tokens", "request_params_n", "request_params_max_tokens",
    "request_prefill_kv_computed_tokens", "engine_sleep_state",
    # Of newer versions, or of some models: what is not there is not shown.
    "prompt_tokens_cached_by_source", "num_requests_kv_fetch_by_stage", "request_num_preemptions", "corrupted_requests",
})  # fmt: skip
"""What is counted of all models, without `vllm:`."""
FAMILIES = (
    "mm_cache_", "spec_decode_", "kv_offload_", "simple_kv_offload_", "nixl_", "mooncake_store_", "hf3fs_",
    "kv_block_", "estimated_",
)  # fmt: skip
"""How the names begin of what vLLM's scheduler reports where there is such a thing."""
PREFIX = "vllm:"


class VllmMetrics:
    """A collector (prometheus_client's) of one model's."""

    def __init__(self, config: VllmConfig, renderer: Any, reported: Mapping[int, Any]) -> None:
        """`renderer`: vLLM's, with its cache of images; `reported`: its last SchedulerStats, by engine."""
        from prometheus_client import CollectorRegistry

        engines = list(range(config.parallel_config.data_parallel_size))
        self._logger: Any = part("vllm.v1.metrics.loggers:PrometheusStatLogger")(config, engines)
        self._logger.log_engine_initialized()
        self._renderer = renderer
        self._requests = CountedRequests(config.lora_config and config.lora_config.max_loras)
        self.begin, self.drop = self._requests.begin, self._requests.drop
        for engine, stats in reported.items():
            self._logger.record(stats, None, engine_idx=engine)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def note(self, outputs: Any) -> None:
        """Counts what an EngineCoreOutputs brought."""
        # One without outputs is no step (AsyncLLM).
        counted = self._requests.iteration(outputs) if outputs.outputs else None
        images = self._renderer.stat_mm_cache()
        self._logger.record(outputs.scheduler_stats, counted, images, engine_idx=outputs.engine_index)

    def render(self, content_type: str) -> bytes:
        """The text, as OpenMetrics or in Prometheus' own form. On any thread."""
        from prometheus_client import generate_latest
        from prometheus_client.openmetrics import exposition

        if not content_type.startswith("application/openmetrics-text"):
            return generate_latest(self._registry)
        encode: Any = exposition.generate_latest
        # Where prometheus_client escapes names (0.26), it takes the colon out of the samples' alone.
        escapes = "escaping" in inspect.signature(encode).parameters
        text: bytes = encode(self._registry, escaping="allow-utf-8") if escapes else encode(self._registry)
        return text

    def collect(self) -> Iterator[Metric]:
        """What is counted here, of all that vLLM has registered."""
        from prometheus_client import REGISTRY

        for metric in REGISTRY.collect():
            name = metric.name.removeprefix(PREFIX)
            if name != metric.name and (name in NAMES or name.startswith(FAMILIES)):
                yield metric
        yield from self._requests.adapters()
