"""Which metrics and labels dashboards, autoscalers and routers ask a vLLM server for, by who asks.

    name                 a sample's
    name*                a histogram's: name_bucket with `le`, name_sum and name_count
    name{label}          with a label
    name{label=a|b}      ... that has each of these values

Labels that Prometheus itself adds (job, instance, namespace, pod, endpoint, container) are left out. Read in November
2026: vllm-project/vllm, examples/observability; vllm-project/production-stack; kserve/website; awsdocs/
amazon-eks-user-guide; llm-d/llm-d, docs/monitoring; llm-d/llm-d-inference-scheduler and kubernetes-sigs/
gateway-api-inference-extension, what they read of a scrape; AWS' documentation of SageMaker's detailed observability.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Asked", "asked"]

TTFT_GOALS = "0.1|0.25|0.5|0.75|1.0|2.5|5.0|10.0"
TPOT_GOALS = "0.025|0.05|0.075|0.1|0.15|0.2|0.3|0.5"
CACHE = (
    "engine,num_gpu_blocks,block_size,cache_dtype,gpu_memory_utilization,enable_prefix_caching,"
    "prefix_caching_hash_algo,num_cpu_blocks,kv_offloading_backend,kv_offloading_size"
)
LORA = "max_lora,running_lora_adapters,waiting_lora_adapters"

TABLE: list[tuple[str, str, str]] = [
    (
        "vLLM, prometheus_grafana/grafana.json",
        "model_name",
        """
        vllm:e2e_request_latency_seconds* vllm:prompt_tokens_total vllm:generation_tokens_total
        vllm:inter_token_latency_seconds* vllm:num_requests_running vllm:num_requests_waiting
        vllm:time_to_first_token_seconds* vllm:kv_cache_usage_perc vllm:request_prompt_tokens*
        vllm:request_generation_tokens* vllm:request_success_total{finished_reason}
        vllm:request_queue_time_seconds* vllm:request_prefill_time_seconds* vllm:request_decode_time_seconds*
        vllm:request_max_num_generation_tokens*
        """,
    ),
    (
        "vLLM, performance_statistics.json and query_statistics.json",
        "model_name",
        """
        vllm:e2e_request_latency_seconds* vllm:time_to_first_token_seconds* vllm:inter_token_latency_seconds*
        vllm:generation_tokens_total vllm:prompt_tokens_total vllm:iteration_tokens_total*
        vllm:request_success_total vllm:request_prompt_tokens*
        """,
    ),
    (
        "vLLM, vllm_overview.json",
        "model_name",
        f"""
        vllm:request_success_total{{finished_reason=stop|length|abort|error|repetition}} vllm:prompt_tokens_total
        vllm:generation_tokens_total vllm:time_to_first_token_seconds*
        vllm:time_to_first_token_seconds_bucket{{le={TTFT_GOALS}}} vllm:inter_token_latency_seconds*
        vllm:e2e_request_latency_seconds* vllm:request_time_per_output_token_seconds*
        vllm:request_time_per_output_token_seconds_bucket{{le={TPOT_GOALS}}} vllm:num_requests_running
        vllm:num_requests_waiting vllm:num_requests_waiting_by_reason{{reason=capacity|deferred}}
        vllm:kv_cache_usage_perc vllm:num_preemptions_total vllm:prefix_cache_hits_total
        vllm:prefix_cache_queries_total vllm:external_prefix_cache_hits_total
        vllm:external_prefix_cache_queries_total vllm:mm_cache_hits_total vllm:mm_cache_queries_total
        vllm:request_queue_time_seconds* vllm:request_prefill_time_seconds* vllm:request_decode_time_seconds*
        vllm:iteration_tokens_total* vllm:request_prompt_tokens* vllm:request_generation_tokens*
        vllm:prompt_tokens_by_source_total{{source=local_compute|local_cache_hit|external_kv_transfer}}
        """,
    ),
    (
        "vLLM, vllm_overview.json",
        "",
        """
        http_requests_total{status=2xx|4xx,handler} http_request_duration_seconds_sum{handler}
        http_request_duration_seconds_count{handler} up
        """,
    ),
    (
        "vLLM, vllm_instances.json",
        "model_name engine",
        """
        vllm:num_requests_running vllm:num_requests_waiting vllm:kv_cache_usage_perc vllm:request_success_total
        vllm:generation_tokens_total vllm:prompt_tokens_total vllm:time_to_first_token_seconds*
        vllm:inter_token_latency_seconds* vllm:e2e_request_latency_seconds* vllm:num_preemptions_total
        vllm:request_queue_time_seconds* vllm:iteration_tokens_total* vllm:num_requests_waiting_by_reason{reason}
        vllm:prefix_cache_hits_total vllm:prefix_cache_queries_total
        vllm:engine_sleep_state{sleep_state=awake|discard_all} vllm:estimated_flops_per_gpu_total
        vllm:estimated_read_bytes_per_gpu_total vllm:estimated_write_bytes_per_gpu_total
        """,
    ),
    (
        "vLLM, vllm_instances.json",
        "",
        f"""
        process_start_time_seconds process_cpu_seconds_total process_resident_memory_bytes process_open_fds
        process_max_fds vllm:cache_config_info{{{CACHE}}} vllm:lora_requests_info{{{LORA}}}
        vllm:sleep_mode_operation_duration_seconds* vllm:rl_weight_update_operation_duration_seconds*
        """,
    ),
    (
        "vLLM, vllm_kv_cache.json",
        "model_name engine",
        """
        vllm:kv_cache_usage_perc vllm:prefix_cache_hits_total vllm:prefix_cache_queries_total
        vllm:prompt_tokens_cached_total vllm:prompt_tokens_total vllm:num_preemptions_total
        vllm:num_requests_waiting_by_reason{reason=capacity|deferred} vllm:num_requests_running
        vllm:prompt_tokens_by_source_total{source=local_compute|local_cache_hit|external_kv_transfer}
        vllm:prompt_tokens_cached_by_source_total{source} vllm:request_prompt_tokens*
        vllm:request_prefill_kv_computed_tokens* vllm:external_prefix_cache_hits_total
        vllm:external_prefix_cache_queries_total vllm:mm_cache_hits_total vllm:mm_cache_queries_total
        vllm:kv_block_lifetime_seconds* vllm:kv_block_idle_before_evict_seconds* vllm:kv_block_reuse_gap_seconds*
        vllm:num_requests_kv_fetch_by_stage{stage} vllm:nixl_xfer_time_seconds* vllm:nixl_bytes_transferred*
        vllm:nixl_post_time_seconds* vllm:nixl_num_descriptors* vllm:nixl_num_failed_transfers_total
        vllm:nixl_num_failed_notifications_total vllm:nixl_num_kv_expired_reqs_total
        vllm:nixl_num_notifications_after_expiry_total vllm:kv_offload_load_bytes_total
        vllm:kv_offload_store_bytes_total vllm:kv_offload_load_time_total vllm:kv_offload_store_time_total
        vllm:kv_offload_load_size* vllm:kv_offload_store_size* vllm:kv_offload_lookup_sync_delay_seconds*
        vllm:kv_offload_lookup_async_delay_seconds* vllm:kv_offload_cpu_cache_usage_perc
        vllm:kv_offload_cpu_cache_write_usage_perc vllm:kv_offload_cpu_cache_read_usage_perc
        vllm:kv_offload_allocation_failure_total vllm:kv_offload_stores_skipped_total
        vllm:simple_kv_offload_save_outcomes_total{outcome} vllm:simple_kv_offload_load_blocks_total
        vllm:simple_kv_offload_used_blocks vllm:simple_kv_offload_pending_store_blocks
        """,
    ),
    (
        "vLLM, vllm_service_status.json",
        "model_name",
        """
        vllm:engine_sleep_state{sleep_state=awake} vllm:time_to_first_token_seconds* vllm:num_requests_running
        vllm:generation_tokens_total vllm:request_success_total{finished_reason=error}
        """,
    ),
    (
        "vLLM, vllm_speculative_decoding.json",
        "model_name engine",
        """
        vllm:spec_decode_num_accepted_tokens_total vllm:spec_decode_num_draft_tokens_total
        vllm:spec_decode_num_drafts_total vllm:spec_decode_num_accepted_tokens_per_pos_total{position}
        vllm:generation_tokens_total vllm:inter_token_latency_seconds*
        """,
    ),
    (
        "production-stack, Helm chart: dashboards, ScaledObject, prometheus-adapter",
        "",
        """
        vllm:e2e_request_latency_seconds*{model_name} vllm:request_time_per_output_token_seconds*{model_name}
        vllm:time_to_first_token_seconds*{model_name} vllm:kv_cache_usage_perc{model_name}
        vllm:num_requests_running{model_name} vllm:num_requests_waiting{model_name} vllm:num_requests_waiting{model}
        vllm:prompt_tokens_total{model_name} vllm:generation_tokens_total{model_name}
        vllm:request_decode_time_seconds*{model_name} vllm:request_prefill_time_seconds*{model_name}
        vllm:request_queue_time_seconds*{model_name} vllm:request_max_num_generation_tokens*{model_name}
        vllm:request_prompt_tokens*{model_name} vllm:request_generation_tokens*{model_name}
        vllm:request_success_total{model_name,finished_reason} vllm:gpu_prefix_cache_hits_total
        vllm:gpu_prefix_cache_queries_total vllm:healthy_pods_total{server} vllm:current_qps
        vllm:num_incoming_requests_total{model} router_cpu_usage_percent router_memory_usage_percent
        router_disk_usage_percent lmcache:local_cache_usage lmcache:num_hit_tokens_total
        lmcache:num_requested_tokens_total lmcache:retrieve_speed*
        """,
    ),
    (
        "production-stack, tutorials/terraform",
        "model_name",
        """
        vllm:gpu_cache_usage_perc vllm:cpu_cache_usage_perc vllm:num_requests_swapped
        vllm:time_per_output_token_seconds*
        """,
    ),
    (
        "production-stack, what its router reads (src/vllm_router/stats/engine_stats.py)",
        "",
        """
        vllm:num_requests_running vllm:num_requests_waiting vllm:gpu_prefix_cache_hit_rate
        vllm:gpu_prefix_cache_hits_total vllm:gpu_prefix_cache_queries_total vllm:gpu_cache_usage_perc
        """,
    ),
    (
        "production-stack's operator, KServe and EKS: KEDA's triggers",
        "",
        """
        vllm:num_requests_running vllm:num_requests_waiting vllm:generation_tokens_total vllm:prompt_tokens_total
        vllm:e2e_request_latency_seconds*
        """,
    ),
    (
        "llm-d, what its scheduler and the Gateway API's inference extension read",
        "",
        f"""
        vllm:num_requests_waiting vllm:num_requests_running vllm:kv_cache_usage_perc
        vllm:lora_requests_info{{{LORA}}} vllm:cache_config_info{{block_size,num_gpu_blocks}}
        """,
    ),
    (
        "llm-d, queries and alerts",
        "",
        """
        vllm:num_preemptions vllm:time_to_first_token_seconds*{model_name} vllm:inter_token_latency_seconds*{model_name}
        vllm:kv_cache_usage_perc{model_name} vllm:num_requests_waiting{model_name} vllm:num_requests_running
        vllm:prompt_tokens_total{model_name} vllm:generation_tokens_total{model_name} vllm:iteration_tokens_total*
        vllm:prefix_cache_hits_total vllm:prefix_cache_queries_total inference_objective_request_total
        inference_model_request_total inference_extension_prefix_indexer_size DCGM_FI_DEV_GPU_UTIL
        """,
    ),
    (
        "SageMaker's detailed observability",
        "",
        """
        vllm:kv_cache_usage_perc vllm:num_requests_running vllm:num_requests_waiting
        vllm:time_to_first_token_seconds* vllm:e2e_request_latency_seconds* vllm:inter_token_latency_seconds*
        vllm:prompt_tokens_total vllm:generation_tokens_total vllm_prompt_tokens_total vllm_num_requests_waiting
        DCGM_FI_DEV_GPU_UTIL node_cpu_seconds_total Response_5XX_total
        """,
    ),
]


class Asked(NamedTuple):
    """A sample that somebody asks for."""

    who: str
    name: str
    labels: dict[str, tuple[str, ...]]
    """With the values that it must have."""


def asked() -> Iterator[Asked]:
    """Each sample of the table."""
    for who, common, text in TABLE:
        for name, labels in _entries(text):
            yield Asked(who, name, {**dict.fromkeys(common.split(), ()), **labels})


def _entries(text: str) -> Iterator[tuple[str, dict[str, tuple[str, ...]]]]:
    for entry in text.split():
        match = re.fullmatch(r"([\w:]+)(\*?)(?:{(.+)})?", entry)
        assert match, entry
        name, histogram, selected = match.groups()
        labels = dict(map(_label, selected.split(","))) if selected else {}
        if histogram:
            yield f"{name}_bucket", {"le": (), **labels}
            yield f"{name}_sum", labels
            yield f"{name}_count", labels
        else:
            yield name, labels


def _label(text: str) -> tuple[str, tuple[str, ...]]:
    name, _, values = text.partition("=")
    return name, tuple(filter(None, values.split("|")))
