"""Loading a model with transformers: weights and tokenizer, where they go, and what memory is left for the cache."""

from __future__ import annotations

import importlib.util
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import MemoryShortError, OptionError, StartError
from ..options import Settings
from .cache import rows_of
from .forward import Forward, ropes
from .options import Arguments

__all__ = ["Loaded", "load"]

log = logging.getLogger(__name__)

CPU_CACHE = 2 << 30
"""The largest cache on a CPU, in bytes, unless the user asks for one."""
CONTEXT = 2048
"""The context of a model that does not say its own, as in vLLM."""
LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "max_seq_length",
)
"""What configurations call the context."""


@dataclass(slots=True)
class Loaded:
    """A model that is ready to run."""

    forward: Forward
    tokenizer: Any
    context: int
    words: int
    """How many logits there are a position."""
    eos_ids: frozenset[int]
    defaults: dict[str, Any]
    """Sampling parameters of the model's generation_config that are not transformers' defaults."""
    budget: int
    """How many tokens the cache may hold."""


def load(settings: Settings, arguments: Arguments) -> Loaded:
    """Loads what the options say; raises StartError, or what transformers raises."""
    import torch
    from transformers import AutoConfig, AutoTokenizer

    common: dict[str, Any] = {"trust_remote_code": settings.trust_remote_code}
    if settings.revision is not None:
        common["revision"] = settings.revision
    if arguments.seed is not None:
        torch.manual_seed(arguments.seed)
    config = AutoConfig.from_pretrained(settings.model_id, **common)
    if getattr(config, "is_encoder_decoder", False):
        raise StartError(f"the transformers engine runs decoder models; {config.model_type} has an encoder too")
    context = _context(config, arguments.max_model_len)
    named = arguments.tokenizer or settings.model_id
    tokenizer = AutoTokenizer.from_pretrained(named, **(common if named == settings.model_id else {}))
    model = _model(settings, arguments, config, common)
    forward = Forward(model.eval())
    budget, words = _measure(forward, settings, arguments, context)
    generation = model.generation_config
    ends = generation.eos_token_id
    ids = (*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id)
    return Loaded(
        forward,
        tokenizer,
        context,
        words,
        frozenset(int(token) for token in ids if token is not None),
        generation.to_diff_dict() if arguments.generation_config == "auto" else {},
        budget,
    )


def _context(config: Any, wanted: int | None) -> int:
    """The context in tokens; raises OptionError for one beyond the model's."""
    text = config.get_text_config(decoder=True)
    known = [length for name in LENGTHS if isinstance(length := getattr(text, name, None), int) and length > 0]
    longest = max(known) if known else None
    for rope in ropes(config):
        if longest and rope.get("factor") and rope["rope_type"] in {"linear", "dynamic", "yarn"}:
            longest = max(longest, int((rope.get("original_max_position_embeddings") or longest) * rope["factor"]))
    if wanted is None:
        if longest is None:
            log.warning("the model does not say its context: %d tokens, or option.max_model_len", CONTEXT)
        return longest or CONTEXT
    if longest is not None and wanted > longest:
        raise OptionError(
            f"option.max_model_len: expected at most {longest}, the model's, got {wanted}", "max_model_len"
        )
    return wanted


def _model(settings: Settings, arguments: Arguments, config: Any, common: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    placed = _placement(settings, arguments)
    values: dict[str, Any] = {**common, "config": config, "dtype": _dtype(settings.dtype), **placed}
    if arguments.attn_implementation is not None:
        values["attn_implementation"] = arguments.attn_implementation
    kind: Any = AutoModelForCausalLM
    model = kind.from_pretrained(settings.model_id, **values)
    if "device_map" not in placed and torch.cuda.is_available():
        number = settings.device_id or 0
        model = model.to(f"cuda:{number if number < torch.cuda.device_count() else 0}")
    return model


def _dtype(name: str) -> Any:
    import torch

    return name if name == "auto" else getattr(torch, name)


def _placement(settings: Settings, arguments: Arguments) -> dict[str, Any]:
    """Which devices the model goes to, and how it is quantized; raises OptionError for what is not installed."""
    import torch

    devices = int(torch.cuda.device_count())
    degree = settings.tensor_parallel_degree
    if degree is not None and degree > max(1, devices):
        found = f"{devices} devices" if devices else "no GPU"
        raise OptionError(
            f"option.tensor_parallel_degree: expected at most what there is, got {degree} with {found}",
            "tensor_parallel_degree",
        )
    spread = devices > 1 and (degree is None or degree > 1)
    values: dict[str, Any] = {}
    if settings.device_map is not None:
        _installed("accelerate", "device_map")
        values["device_map"] = settings.device_map
    elif spread and degree is None and importlib.util.find_spec("accelerate") is None:
        log.warning("one of %d devices is used: to spread the model over them, install accelerate", devices)
    elif spread:
        _installed("accelerate", "tensor_parallel_degree")
        # Layers one after the other on the first so many devices: the weights are shared out, the work is not.
        values["device_map"] = "auto"
        if degree is not None and degree < devices:
            values["max_memory"] = {number: torch.cuda.mem_get_info(number)[0] for number in range(degree)}
    if arguments.bits is not None:
        from transformers import BitsAndBytesConfig

        for package in ("bitsandbytes", "accelerate"):
            _installed(package, "quantize")
        values["quantization_config"] = BitsAndBytesConfig(
            load_in_8bit=arguments.bits == 8, load_in_4bit=arguments.bits == 4
        )
        values.setdefault("device_map", "auto")
    return values


def _installed(package: str, option: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise OptionError(f"option.{option}: it needs the package {package}, which is not installed", option)


def _measure(forward: Forward, settings: Settings, arguments: Arguments, context: int) -> tuple[int, int]:
    """How many tokens the cache may hold, and how many words there are, seen by a trial pass.

    Raises MemoryShortError where one sequence of the whole context would not fit.
    """
    import torch

    gpu = forward.device.type == "cuda"
    trial = min(arguments.max_num_batched_tokens, context - 1) if gpu else 1
    if gpu:
        torch.cuda.reset_peak_memory_stats(forward.device)
    with torch.inference_mode():
        rows = rows_of(forward, trial, context)
        prompts = rows.start([[0] * max(trial, 1)])
        logits = prompts.advance(forward, prompts.width)
    held = sum(map(_bytes, prompts.caches)) / prompts.width
    if arguments.kv_cache_memory_bytes is not None:
        free = arguments.kv_cache_memory_bytes
    elif gpu:
        _, total = torch.cuda.mem_get_info(forward.device)
        free = int(total * arguments.gpu_memory_utilization) - int(torch.cuda.max_memory_allocated(forward.device))
    else:
        free = min(CPU_CACHE, available() // 4)
    budget = int(free / held) if held else context * settings.max_rolling_batch_size
    if budget < context:
        raise MemoryShortError(
            f"the cache's {max(free, 0) >> 20} MiB hold {max(budget, 0)} tokens, less than the context of {context}: "
            "lower option.max_model_len, or raise option.kv_cache_memory_bytes",
            "max_model_len",
        )
    return budget, int(logits.shape[-1])


def _bytes(cache: Any) -> int:
    """What a cache's tensors take."""
    import torch

    def size(value: Any) -> int:
        if isinstance(value, torch.Tensor):
            return int(value.nbytes)
        if isinstance(value, dict):
            return sum(map(size, value.values()))
        return sum(map(size, value)) if isinstance(value, list | tuple) else 0

    return sum(size(getattr(layer, name, None)) for layer in cache.layers for name in ("keys", "values"))


def available() -> int:
    """The machine's free memory in bytes, as Linux tells it."""
    with_cache = Path("/proc/meminfo")
    if with_cache.is_file():
        for line in with_cache.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) // 2
