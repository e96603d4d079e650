"""Hugging Face's names, and those of TGI's launcher (text-generation-inference 3.3, launcher/src/main.rs).

The LMI container's entry script (djl-serving 0.36, dockerd-entrypoint-with-cuda-compat.sh) knows some of them: the
options are what it makes of them, so that both give the same.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..advice.vllm import ROPE
from .variable import boolean, by_hand, nothing, option, unread

__all__ = ["HUGGING_FACE", "MODELS", "TGI"]

MODELS = {"HF_MODEL_ID": ("HF_REVISION", "HF_MODEL_REVISION"), "MODEL_ID": ("REVISION",), "SM_VLLM_MODEL": ()}
"""The variables that name the model, in their order, with those of its revision. Beside the first two, TGI's generic
names count."""


def _eager(text: str) -> str:
    # The entry script takes everything but `true` for no.
    return "false" if text == "true" else "true"


def _graphs(text: str) -> tuple[str, str]:
    sizes = [size.strip() for size in text.split(",")]
    if not all(re.fullmatch(r"\d+", size) for size in sizes):
        raise ValueError("batch sizes with commas between, or 0 for none")
    return ("true", "") if sizes == ["0"] else ("", " ".join(sizes))


def _speculation(text: str) -> tuple[str, str]:
    if not text.isdecimal():
        raise ValueError("a number of tokens")
    return ("ngram", text) if int(text) else ("", "")


def _one_device(text: str) -> str:
    return "1" if boolean(text) == "false" else ""


def _adapters(text: str) -> tuple[str, str]:
    """`name=path,...`, where TGI takes ids of the hub too, and revisions."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    for item in items:
        name, _, path = item.partition("=")
        if not path or "@" in path or (not Path(path).is_absolute() and "/" not in path):
            raise ValueError(
                f"name=folder, with commas between (for an adapter on the hub, as {name!r}, download it into the "
                "folder `adapters` of the model directory)"
            )
    return ("true", " ".join(items)) if items else ("", "")


HUGGING_FACE = (
    option("HF_MODEL_QUANTIZE", "quantize", copied=True,
           help="vLLM's `bitsandbytes` has 4 bits (NF4), TGI's 8. TGI's other methods: by the table above."),
    option("HF_MODEL_TRUST_REMOTE_CODE", "trust_remote_code", convert=boolean, copied=True),
)  # fmt: skip
"""Without those that name the model, its revision and its task."""

# fmt: off
TGI = (
    # What is shared by the devices.
    option("SHARDED", "tensor_parallel_degree", convert=_one_device, generic=True, help="Only `false` says something."),
    option("SM_NUM_GPUS", "tensor_parallel_degree", copied=True),
    option("NUM_SHARD", "tensor_parallel_degree"),
    option("CUDA_MEMORY_FRACTION", "gpu_memory_utilization", copied=True,
           help="vLLM's default is 0.9, TGI's 1: at 1 vLLM may not start."),
    # The model.
    option("QUANTIZE", "quantize", generic=True, help="As HF_MODEL_QUANTIZE."),
    option("DTYPE", "dtype", generic=True),
    option("TRUST_REMOTE_CODE", "trust_remote_code", convert=boolean, generic=True),
    option("KV_CACHE_DTYPE", "kv_cache_dtype", generic=True),
    option("SPECULATE", "speculative_draft_model", "speculative_length", convert=_speculation, generic=True,
           help="Drafts come from the prompt (n-grams); a Medusa model needs `option.speculative_config`."),
    option("LORA_ADAPTERS", "enable_lora", "lora_modules", convert=_adapters,
           help="Folders only; what is on the hub is refused."),
    *(by_hand(name, ROPE) for name in ("ROPE_SCALING", "ROPE_FACTOR")),
    by_hand("TOKENIZER_CONFIG_PATH", "set option.chat_template to a file with the template"),
    # Limits.
    option("MAX_CONCURRENT_REQUESTS", "max_queued_requests",
           help="They count beyond those that are generated, as `job_queue_size` does in LMI."),
    option("MAX_INPUT_TOKENS", "max_prompt_tokens"),
    option("MAX_INPUT_LENGTH", "max_prompt_tokens"),
    option("MAX_TOTAL_TOKENS", "max_model_len"),
    option("MAX_BATCH_PREFILL_TOKENS", "max_rolling_batch_prefill_tokens", copied=True,
           help="vLLM counts the running sequences' tokens too."),
    option("MAX_BATCH_SIZE", "max_rolling_batch_size", copied=True),
    option("PAYLOAD_LIMIT", "max_body_bytes", generic=True),
    nothing("MAX_BATCH_TOTAL_TOKENS", "vLLM fills the memory it may use; option.max_tokens_in_flight limits tokens"),
    nothing("MAX_BEST_OF", "best_of has limits of its own"),
    nothing("MAX_STOP_SEQUENCES", "stop has limits of its own"),
    nothing("MAX_TOP_N_TOKENS", "option.max_logprobs limits top_n_tokens"),
    nothing("MAX_CLIENT_BATCH_SIZE", "TGI's requests have one input"),
    # How it computes.
    option("CUDA_GRAPHS", "enforce_eager", "cudagraph_capture_sizes", convert=_graphs, generic=True),
    option("ENABLE_CUDA_GRAPHS", "enforce_eager", convert=_eager, copied=True),
    option("PREFIX_CACHING", "enable_prefix_caching", convert=boolean, generic=True),
    option("USE_PREFIX_CACHING", "enable_prefix_caching", convert=boolean, generic=True),
    nothing("WAITING_SERVED_RATIO", "vLLM schedules in a way of its own"),
    nothing("MAX_WAITING_TOKENS", "vLLM schedules in a way of its own"),
    nothing("ATTENTION", "vLLM chooses the kernel; option.attention_backend names one"),
    nothing("DISABLE_CUSTOM_KERNELS", "vLLM chooses the kernel"),
    nothing("VALIDATION_WORKERS", "prompts are tokenized in the engine's process"),
    # What is served.
    nothing("DISABLE_GRAMMAR_SUPPORT", "structured output costs nothing where no request asks for it"),
    nothing("ENABLE_PREFILL_LOGPROBS", "requests that ask for decoder_input_details get them"),
    nothing("MESSAGES_API_ENABLED", "chats are always served"),
    nothing("WATERMARK_GAMMA", "vLLM has no watermark"),
    nothing("WATERMARK_DELTA", "vLLM has no watermark"),
    # The server.
    nothing("GRACEFUL_TERMINATION_TIMEOUT", "`lmi serve` has --grace"),
    nothing("OTLP_ENDPOINT", "option.otlp_traces_endpoint is vLLM's"),
    nothing("OTLP_SERVICE_NAME", "OTEL_SERVICE_NAME is vLLM's"),
    nothing("USAGE_STATS", "this handler sends none; VLLM_NO_USAGE_STATS=1 is vLLM's"),
    nothing("WEIGHTS_CACHE_OVERRIDE", "HF_HOME says where downloads lie"),
    nothing("SHARD_UDS_PATH", "there is no such socket"),
    nothing("NGROK", "there is no tunnel"),
    unread("HOSTNAME", "the host says where it listens; `lmi serve` has --host"),
    unread("PORT", "the host says where it listens; `lmi serve` has --port"),
    unread("PROMETHEUS_PORT", "/metrics is on the host's own port"),
    unread("MASTER_ADDR", "the engine's processes find each other"),
    unread("MASTER_PORT", "the engine's processes find each other"),
    unread("JSON_OUTPUT", "the log is text"),
    unread("CORS_ALLOW_ORIGIN", "`lmi serve` has --allowed-host"),
    unread("API_KEY", "SageMaker checks who calls an endpoint; `lmi serve` has LMI_API_KEY"),
)
# fmt: on
