"""What vLLM, and what is below it, says: the texts by which we know what has happened.

A text that some version words differently costs a clear message, and nothing else; the parts of vLLM that we cannot do
without are in vllm/internals.py. Read in vLLM 0.26.0 and 0.32.0.
"""

from __future__ import annotations

import re

__all__ = [
    "ADVICE",
    "CORE_FAILED",
    "MORE",
    "NOISE",
    "OUT_OF_MEMORY",
    "PROCESSOR_FAILED",
    "START_FAILED",
    "START_MEMORY",
    "TOO_LONG",
    "own_words",
    "says_nothing",
]

START_FAILED = frozenset({"EngineCore failed to start.", "WorkerProc failed to start."})
"""Lines of the log with which vLLM's processes tell of the exception that ended their start."""

CORE_FAILED = "EngineCore encountered an issue"
"""The beginning of what vLLM's client raises where its core has ended."""

PROCESSOR_FAILED = "Failed to apply "
"""The beginning of what is raised where a model's processor of images refuses one; the cause says why."""

TOO_LONG = "Audio exceeds maximum allowed duration"
"""The beginning of what its reader raises for audio that lasts longer than is allowed."""

_NOTHING = re.compile(r"see (the )?(root cause|stack ?trace|error)|root cause above", re.IGNORECASE)


_OF_WORKER = re.compile(r"^Worker failed with error '(?P<text>.+)', please check the stack trace above")


def own_words(text: str) -> str:
    """What a worker said, of what its core says that it said."""
    found = _OF_WORKER.match(text)
    return found["text"] if found else text


def says_nothing(text: str) -> bool:
    """Whether an error's message only says where to look for the cause."""
    return _NOTHING.search(text) is not None


# Why a start failed.

OUT_OF_MEMORY = re.compile(
    r"out of memory|no available memory for the cache blocks|can't allocate memory|cannot allocate memory"
    r"|is less than requested memory for kv|is less than desired GPU memory utilization|std::bad_alloc",
    re.IGNORECASE,
)

NOISE = (
    # pydantic's, around what a validator of vLLM's says.
    re.compile(r"^\d+ validation errors? for \w+ (Value error, |Assertion failed, )?"),
    re.compile(r" \[type=\w+, input_value=.*"),
    # huggingface_hub's, around what a validator of transformers' configurations says.
    re.compile(r"^Class validation error for validator '\w+': \w+: "),
    re.compile(r"\. Supported architectures: dict_keys\(.*"),
)

_SHAPES = (
    r"exceeds dimension size|size mismatch|shape mismatch|must match the size|does not match the shape"
    r"|weights were not initialized from checkpoint|assert .*\bloaded_weight\b"
)

ADVICE: tuple[tuple[str, str], ...] = (
    (r"CPU Offloading", "kv_offloading_size"),
    (r"larger than the available KV cache memory|estimated maximum model length", "max_model_len"),
    (r"No available memory for the cache blocks|desired GPU memory utilization", "gpu_memory_utilization"),
    (r"requested memory for kv", "kv_cache_memory_bytes"),
    (r"derived max_model_len", "max_model_len"),
    (r"draft_tensor_parallel_size", "draft_model_tp_size"),
    (r"tensor parallel size|World size \(\d+\) is larger|tensor_parallel_size|\btp_size\b", "tensor_parallel_degree"),
    (r"pipeline.parallel", "pipeline_parallel_degree"),
    (r"expert parallel", "enable_expert_parallel"),
    (r"\bRay\b", "distributed_executor_backend"),
    (r"max_num_batched_tokens", "max_rolling_batch_prefill_tokens"),
    (r"quantiz|config file for \w+", "quantize"),
    (r"Reasoning parser", "reasoning_parser"),
    (r"trust_remote_code", "trust_remote_code"),
    (r"speculative", "speculative_config"),
    (r"dtype|bfloat16|float16", "dtype"),
    (r"architectures? .* not supported|does not recognize this architecture|not compatible with vLLM", "model_id"),
    (r"load.format", "load_format"),
    (r"gpu_memory_utilization", "gpu_memory_utilization"),
    (r"tokenizer", "tokenizer"),
    (_SHAPES, "model_id"),
    (
        r"repo(sitory)? id|repo look-ups|local directory|model weights|model_type|safetensor|huggingface\.co|Hub",
        "model_id",
    ),
)
"""What a message speaks of, and the option that it is about; the first that fits."""

MORE = (
    (r"larger than the available KV cache memory",
     ("the KV cache holds less than one request of max_model_len: lower option.max_model_len or "
     "option.max_rolling_batch_size, or raise option.gpu_memory_utilization or option.kv_cache_memory_bytes")),
    (r"No available memory for the cache blocks",
     ("nothing is left for the KV cache: lower option.max_rolling_batch_size, option.max_rolling_batch_prefill_tokens "
     "or option.max_model_len, or raise option.gpu_memory_utilization")),
    (r"architectures? .* not supported", "vLLM has no such architecture, and cannot run transformers' modelling of it"),
    (_SHAPES, "the weights do not fit config.json"),
)  # fmt: skip

START_MEMORY = frozenset({
    "Model loading took %s GiB memory and %.6f seconds",
    "Model loading took %s GiB and %.6f seconds",
    "Available KV cache memory: %s GiB",
})  # fmt: skip
"""Lines of the log, with numbers only, in which vLLM's processes say what they took of a device's memory."""
