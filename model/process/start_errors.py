"""Why an engine could not start, in one line: the cause, without what surrounds it, and the option to look at."""

from __future__ import annotations

import re

from ..errors import MemoryShortError, StartError, one_line
from .output_tail import says_nothing

__all__ = ["start_error"]

MAX_CAUSE_CHARACTERS = 600
"""Characters of a cause that are told: the rest, as a list of all architectures, is in the log."""

_OUT_OF_MEMORY = re.compile(
    r"out of memory|no available memory for the cache blocks|can't allocate memory|cannot allocate memory"
    r"|is less than requested memory for kv|is less than desired GPU memory utilization|std::bad_alloc",
    re.IGNORECASE,
)

_NOISE = (
    # pydantic's, around what a validator of vLLM's says.
    re.compile(r"^\d+ validation errors? for \w+ (Value error, |Assertion failed, )?"),
    re.compile(r" \[type=\w+, input_value=.*"),
    re.compile(r"\. Supported architectures: dict_keys\(.*"),
)

_ADVICE: tuple[tuple[str, str], ...] = (
    (r"larger than the available KV cache memory|estimated maximum model length", "max_model_len"),
    (r"No available memory for the cache blocks|desired GPU memory utilization", "gpu_memory_utilization"),
    (r"requested memory for kv", "kv_cache_memory_bytes"),
    (r"derived max_model_len", "max_model_len"),
    (r"tensor parallel size|World size \(\d+\) is larger|tensor_parallel_size", "tensor_parallel_degree"),
    (r"pipeline.parallel", "pipeline_parallel_degree"),
    (r"max_num_batched_tokens", "max_rolling_batch_prefill_tokens"),
    (r"quantiz|config file for \w+", "quantize"),
    (r"Reasoning parser", "reasoning_parser"),
    (r"trust_remote_code", "trust_remote_code"),
    (r"speculative", "speculative_config"),
    (r"dtype|bfloat16|float16", "dtype"),
    (r"architectures? .* not supported|does not recognize this architecture", "model_id"),
    (r"load.format", "load_format"),
    (r"gpu_memory_utilization", "gpu_memory_utilization"),
    (r"tokenizer", "tokenizer"),
    (r"exceeds dimension size|size mismatch|shape mismatch|must match the size|does not match the shape", "model_id"),
    (
        r"repo(sitory)? id|repo look-ups|local directory|model weights|model_type|safetensor|huggingface\.co|Hub",
        "model_id",
    ),
)
"""What a message speaks of, and the option that it is about; the first that fits."""

_MORE = (
    (r"architectures? .* not supported", "vLLM has no such architecture; option.backend=transformers may"),
    (r"exceeds dimension size|size mismatch|shape mismatch|must match the size|does not match the shape",
     "the weights do not fit config.json"),
)  # fmt: skip


def start_error(error: BaseException) -> StartError:
    """What a backend's failure to start is reported as."""
    if isinstance(error, StartError):
        return error
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    told: list[str] = []
    for part in chain:
        text = _clear(part)
        # One that is about another often repeats it.
        if text and not any(text in other for other in told):
            told.append(text)
    said = " <- ".join([text for text in told if not says_nothing(text)] or told)
    short = isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(said) is not None
    option = next((option for pattern, option in _ADVICE if re.search(pattern, said, re.IGNORECASE)), None)
    more = next((f"{words}: " for pattern, words in _MORE if re.search(pattern, said, re.IGNORECASE)), "")
    look = f", see option.{option}" if option else ""
    kind = MemoryShortError if short else StartError
    return kind(f"the engine could not start{look}: {more}{_cut(said)}", option)


def _clear(error: BaseException) -> str:
    text = one_line(str(error)) or type(error).__name__
    for noise in _NOISE:
        text = noise.sub("", text)
    # As of a decoder's StopIteration, the place where it stood.
    return "" if text.isdecimal() else text


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CAUSE_CHARACTERS else text[:MAX_CAUSE_CHARACTERS].rsplit(" ", 1)[0] + " ..."
