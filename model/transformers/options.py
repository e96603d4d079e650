"""`Settings.engine_arguments` for the transformers engine: the few arguments of vLLM's that it has too, and its own.

    name, text --> Arguments, or OptionError: an argument of vLLM's that this engine does not have is refused by name

Needs no library, so that `lmi check` can judge options anywhere.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Any

import msgspec

from ..options import Settings
from ..options.advice.find import closest
from ..options.faults import refuse, shown
from ..options.table import name_of_argument

__all__ = ["ONLY_HERE", "Arguments", "transformers_arguments"]

log = logging.getLogger(__name__)

_NONE = {"", "none", "null"}
_SCALE = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_BITS = {"bitsandbytes4": 4, "bitsandbytes8": 8}


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """What the transformers engine takes besides Settings."""

    max_model_len: int | None = None
    """None: the model's."""
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    max_num_batched_tokens: int = 2048
    """How many tokens a pass computes at most."""
    tokenizer: str | None = None
    max_logprobs: int = 20
    seed: int | None = None
    attn_implementation: str | None = None
    generation_config: str = "auto"
    """auto: defaults of sampling parameters from the model's generation_config.json; vllm: neutral ones."""
    any_whitespace: bool = True
    """Whether JSON that is laid down may have white space wherever JSON allows it."""
    bits: int | None = None
    """Bits of the weights when they are quantized while loading, by bitsandbytes."""

    @property
    def given(self) -> dict[str, Any]:
        """What is not its default."""
        default = Arguments()
        return {
            name: value for name in self.__struct_fields__ if (value := getattr(self, name)) != getattr(default, name)
        }


def _integer(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtKMGT]?)", text)
    if not match or ("." in match[1] and match[2] not in "kmgt"):
        raise ValueError("an integer")
    number = float(match[1]) * _SCALE[match[2]]
    if number < 1 or number != int(number):
        raise ValueError("an integer of at least 1")
    return int(number)


def _context(text: str) -> int | None:
    return None if text.lower() in {"auto", "-1"} else _integer(text)


def _share(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number <= 1:
        raise ValueError("a number above 0, up to 1")
    return number


def _switch(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("true or false")
    return text.lower() == "true"


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("an integer of at least 0")
    return int(text)


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return text.lower()

    return parse


def _whitespace(text: str) -> bool:
    try:
        config: Any = json.loads(text)
    except ValueError:
        config = None
    if not isinstance(config, dict):
        raise ValueError("a JSON object")
    if config.get("backend", "xgrammar") not in {"auto", "xgrammar"}:
        raise ValueError("xgrammar as backend")
    if unknown := config.keys() - {"backend", "disable_any_whitespace"}:
        raise ValueError(f"backend and disable_any_whitespace only, not {', '.join(sorted(unknown))}")
    return not config.get("disable_any_whitespace", False)


def _bits(text: str) -> int:
    if text.lower() not in _BITS:
        raise ValueError("bitsandbytes8 or bitsandbytes4 (a model that is quantized already needs none)")
    return _BITS[text.lower()]


_OURS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "max_model_len": ("max_model_len", _context),
    "kv_cache_memory_bytes": ("kv_cache_memory_bytes", _integer),
    "gpu_memory_utilization": ("gpu_memory_utilization", _share),
    "max_num_batched_tokens": ("max_num_batched_tokens", _integer),
    "tokenizer": ("tokenizer", str),
    "max_logprobs": ("max_logprobs", _natural),
    "seed": ("seed", _natural),
    "attn_implementation": ("attn_implementation", str),
    "generation_config": ("generation_config", _one_of("auto", "vllm")),
    "structured_outputs_config": ("any_whitespace", _whitespace),
    "quantization": ("bits", _bits),
}
"""Name to field of Arguments and reader."""

ONLY_HERE = frozenset({"attn_implementation"})
"""Those that vLLM does not have."""

_NO_EFFECT: dict[str, Callable[[str], Any]] = {
    "enforce_eager": _switch,
    "enable_chunked_prefill": _switch,
    "enable_prefix_caching": _one_of("false"),
    "load_format": _one_of("auto", "hf", "safetensors", "pt"),
    "tokenizer_mode": _one_of("auto", "hf"),
    "runner": _one_of("auto", "generate"),
    "convert": _one_of("auto", "none"),
    "disable_log_stats": _switch,
    "cpu_offload_gb": _one_of("0", "0.0"),
    "speculative_config": _one_of("none", "null"),
    "kv_transfer_config": _one_of("none", "null"),
    "pipeline_parallel_size": _one_of("1"),
}
"""Arguments of vLLM's with the values that ask for nothing that this engine does not do."""

_SETTINGS = {
    "model", "dtype", "max_num_seqs", "revision", "trust_remote_code", "tensor_parallel_size", "reasoning_parser",
    "reasoning_parser_plugin",
}  # fmt: skip
"""Arguments that are fields of Settings."""

_PARSERS = ("tool_call_parser", "reasoning_parser", "tool_parser_plugin", "reasoning_parser_plugin")
"""Settings that name parsers of vLLM's, or files that bring some."""


def transformers_arguments(settings: Settings) -> Arguments:
    """The arguments; raises one OptionError for all that are wrong.

    Where vLLM was the first choice (`option.backend=auto`), what only vLLM has is left out, with one log line.
    """
    values: dict[str, Any] = {}
    faults: list[tuple[str, str]] = []
    left_out: list[str] = []
    for name, text in settings.engine_arguments.items():
        option = name_of_argument(name)
        if name in _SETTINGS:
            continue
        if name not in _OURS and name not in _NO_EFFECT:
            if settings.engine == "auto" or name in settings.unprefixed:
                left_out.append(option)
            else:
                faults.append((option, _unknown(option)))
            continue
        try:
            if name in _NO_EFFECT:
                _NO_EFFECT[name](text)
            elif text.lower() not in _NONE:
                field, read = _OURS[name]
                values[field] = read(text)
        except ValueError as error:
            if settings.engine == "auto" and name in _NO_EFFECT:
                left_out.append(option)
                continue
            faults.append((option, f"option.{option}: the transformers engine takes {error}, got {shown(text)}"))
    _quantized(settings, values, faults)
    for name in (name for name in _PARSERS if getattr(settings, name)):
        if settings.engine == "auto":
            left_out.append(name)
        else:
            faults.append((name, f"option.{name}: the transformers engine does not parse responses, vLLM does"))
    refuse(faults)
    if left_out:
        log.warning("without effect on the transformers engine: %s", ", ".join(f"option.{name}" for name in left_out))
    return Arguments(**values)


def _quantized(settings: Settings, values: dict[str, Any], faults: list[tuple[str, str]]) -> None:
    """load_in_8bit and load_in_4bit, older names of option.quantize."""
    for name, bits in (("load_in_8bit", 8), ("load_in_4bit", 4)):
        if getattr(settings, name) and values.setdefault("bits", bits) != bits:
            faults.append((name, f"option.{name}: contradicts the option that sets {values['bits']} bits"))


def _unknown(name: str) -> str:
    return f"option.{name}: the transformers engine has no such option{closest(name, _OURS, 'option.')}"
