"""Loading a model with transformers: weights and tokenizer, where they go, and what runs its sequences."""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import dataclass
from typing import Any

from ..errors import MemoryShortError, OptionError, StartError, one_line
from ..options import Settings
from .batching import Batching
from .loops import Loops
from .options import Arguments

__all__ = ["Loaded", "load", "runner"]

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

    model: Any
    device: Any
    """Where its inputs go."""
    tokenizer: Any
    context: int
    words: int
    """How many logits there are a position."""
    eos_ids: frozenset[int]
    defaults: dict[str, Any]
    """Sampling parameters of the model's generation_config that are not transformers' defaults."""


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
    model = _model(settings, arguments, config, common).eval()
    device = model.get_input_embeddings().weight.device
    with torch.inference_mode():
        words = int(model(input_ids=torch.tensor([[0]], device=device)).logits.shape[-1])
    generation = model.generation_config
    ends = generation.eos_token_id
    ids = (*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id)
    return Loaded(
        model,
        device,
        tokenizer,
        context,
        words,
        frozenset(int(token) for token in ids if token is not None),
        generation.to_diff_dict() if arguments.generation_config == "auto" else {},
    )


def _context(config: Any, wanted: int | None) -> int:
    """The context in tokens; raises OptionError for one beyond the model's."""
    text = config.get_text_config(decoder=True)
    known = [length for name in LENGTHS if isinstance(length := getattr(text, name, None), int) and length > 0]
    longest = max(known) if known else None
    for rope in _rotary_embeddings(text):
        if longest and rope.get("factor") and rope.get("rope_type", rope.get("type")) in {"linear", "dynamic", "yarn"}:
            longest = max(longest, int((rope.get("original_max_position_embeddings") or longest) * rope["factor"]))
    if wanted is None:
        if longest is None:
            log.warning(
                "the model does not declare a context length: %d tokens is used, unless option.max_model_len is set",
                CONTEXT,
            )
        return longest or CONTEXT
    if longest is not None and wanted > longest:
        raise OptionError(
            f"option.max_model_len: expected at most {longest}, the model's, got {wanted}", "max_model_len"
        )
    return wanted


def _rotary_embeddings(text: Any) -> list[dict[str, Any]]:
    """How they are scaled: the parameters of each kind of layer, of a text model's configuration."""
    given = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    return [part for part in given.values() if isinstance(part, dict)] or [given]


def _scaled_by_length(config: Any, context: int) -> bool:
    """Whether positions depend on the longest sequence of a pass (transformers.modeling_rope_utils)."""
    text = config.get_text_config(decoder=True)
    return any(
        rope.get("rope_type", rope.get("type")) in {"dynamic", "longrope"}
        and context > (rope.get("original_max_position_embeddings") or getattr(text, "max_position_embeddings", 0) or 0)
        for rope in _rotary_embeddings(text)
    )


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
            f"option.tensor_parallel_degree: expected at most the devices there are, got {degree} with {found}",
            "tensor_parallel_degree",
        )
    spread = devices > 1 and (degree is None or degree > 1)
    values: dict[str, Any] = {}
    if settings.device_map is not None:
        _installed("accelerate", "device_map")
        values["device_map"] = settings.device_map
    elif spread and degree is None and importlib.util.find_spec("accelerate") is None:
        log.warning("only one of %d devices is used; install accelerate to spread the model over them", devices)
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
        raise OptionError(f"option.{option}: requires the package {package}, which is not installed", option)


def runner(loaded: Loaded, settings: Settings, arguments: Arguments) -> Batching | Loops:
    """What runs the model's sequences: the library's continuous batching where that can, else a loop for each.

    Raises MemoryShortError where the cache would not hold one sequence of the whole context.
    """
    model, most = loaded.model, settings.max_rolling_batch_size
    attention = model.config._attn_implementation
    batching, size = None, 0
    library = logging.getLogger("ContinuousBatchingLogger")
    library.setLevel(logging.CRITICAL)
    try:
        if _scaled_by_length(model.config, loaded.context):
            raise RuntimeError("a sequence's positions would depend on the length of others")
        share, size = _memory(loaded.device, arguments)
        batching = Batching(
            model, most=most, context=loaded.context, batch_tokens=arguments.max_num_batched_tokens, memory=share
        )
        if batching.budget < loaded.context:
            raise MemoryError
        batching.try_out(model)
        log.info("continuous batching, a cache of %d tokens", batching.budget)
        return batching
    except Exception as error:  # noqa: BLE001 - whatever the library has against a model
        if batching is not None:
            batching.close()
        if isinstance(error, MemoryError):
            raise MemoryShortError(
                f"the cache's {size >> 20} MiB hold less than the context of {loaded.context}: lower "
                "option.max_model_len, or raise option.kv_cache_memory_bytes",
                "max_model_len",
            ) from None
        if model.config._attn_implementation != attention:
            model.set_attn_implementation(attention)
        log.warning(
            "sequences are computed one by one, as continuous batching of transformers cannot run %s: %s",
            type(model).__name__,
            one_line(f"{type(error).__name__}: {error}")[:300],
        )
        return Loops(model, most=most)
    finally:
        library.setLevel(logging.WARNING)


def _memory(device: Any, arguments: Arguments) -> tuple[float, int]:
    """Which share of the free memory, as the library counts it, the cache may take, and how many bytes that is."""
    import psutil
    import torch

    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        size = int(total * arguments.gpu_memory_utilization) - (total - free)
    else:
        memory = psutil.virtual_memory()
        free = memory.total - psutil.Process().memory_info().rss
        size = min(CPU_CACHE, memory.available // 4)
    size = arguments.kv_cache_memory_bytes or max(size, 1)
    return min(1.0, size / free), size
