"""The shapes of an adapter's tensors, beside those of the model that it is for, as config.json tells them.

    W + alpha / r * B A     W: [out, in] of the model,  lora_A: [r, in],  lora_B: [out, r]

vLLM copies each tensor into the corner of a buffer of the model's size (layers/base_linear.py, set_lora): one that is
too large is an error, one that is too small changes part of the matrix, and one of a layer that is not there nothing.
So what certainly does not fit is a fault here. Where a model's shapes are not certain nothing is said: they were
compared with transformers' own modules, for the kinds of models below, and never where a field is left to a default.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["bytes_of_slot", "modules_of", "tensor_faults"]

_TENSOR = re.compile(
    r"(?:base_model\.model\.)?(?P<module>.+)\.(?:lora_(?P<half>[AB])\.weight|lora_embedding_(?P<table>[AB]))"
)
"""A name that vLLM takes (lora/utils.py, parse_fine_tuned_lora_name)."""
_OF_BASE = (".embed_tokens.base_layer.weight", ".lm_head.base_layer.weight")
"""Ends of names that vLLM skips (is_base_embedding_weights)."""
_LAYER = re.compile(r"(?P<before>.*\.)?layers\.(?P<layer>\d+)\.(?:self_attn|mlp)\.(?P<name>\w+)")
_BEFORE = {None, "model.", "language_model.", "language_model.model.", "model.language_model."}
"""What stands before the layers of the language model, not before those of what sees or hears."""

_DIVIDED = {
    "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text",
    "phi3", "granite", "olmo", "olmo2", "olmo3", "cohere", "cohere2", "smollm3",
}  # fmt: skip
"""Values of model_type where a head has hidden_size / num_attention_heads dimensions unless head_dim says otherwise."""
_STATED = {
    "qwen3", "qwen3_moe", "qwen3_vl_text", "gemma", "gemma2", "gemma3_text", "ministral3", "exaone4", "ernie4_5",
    "seed_oss",
}  # fmt: skip
"""Those where head_dim must say it."""
_EXPERTS = {"mixtral", "qwen2_moe", "qwen3_moe"}
"""Those with experts, whose shapes are not known here."""
_WITH_VOCABULARY = {"llama", "phi3", "qwen3", "granite", "exaone4", "ernie4_5"}
"""Those where vLLM keeps room for adapters of embed_tokens and lm_head too (embedding_modules, models/llama.py)."""

_SLICES = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"), "o_proj": ("o_proj",),
    "gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",),
}  # fmt: skip
"""The modules of a layer in vLLM, and the model's that each is made of."""


@dataclass(frozen=True, slots=True)
class _Base:
    """Sizes of a model; 0: not known."""

    kind: str
    hidden: int
    layers: int
    queries: int
    """The heads' dimensions together, of queries and of keys (values have the same)."""
    keys: int
    inner: int
    vocabulary: int
    is_text: bool
    """Whether it is nothing but a language model."""

    def sizes(self, name: str) -> tuple[int, int]:
        """(in, out) of a module of each layer."""
        both = self.queries + 2 * self.keys if self.queries and self.keys else 0
        return {
            "q_proj": (self.hidden, self.queries),
            "k_proj": (self.hidden, self.keys),
            "v_proj": (self.hidden, self.keys),
            "qkv_proj": (self.hidden, both),
            "o_proj": (self.queries, self.hidden),
            "gate_proj": (self.hidden, self.inner),
            "up_proj": (self.hidden, self.inner),
            "gate_up_proj": (self.hidden, 2 * self.inner),
            "down_proj": (self.inner, self.hidden),
        }.get(name, (0, 0))


def _base_of(config: Mapping[str, Any] | None) -> _Base | None:
    """What is certain of a model by its config.json; None where its kind is not known."""
    nested = (config or {}).get("text_config")
    text = nested if isinstance(nested, dict) else config or {}
    kind = text.get("model_type")
    if kind not in _DIVIDED | _STATED:
        return None

    def size(field: str) -> int:
        value = text.get(field)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0

    hidden, heads = size("hidden_size"), size("num_attention_heads")
    head = size("head_dim") or (hidden // heads if heads and kind in _DIVIDED else 0)
    # transformers' LlamaConfig: no number of them is that of the heads.
    groups = size("num_key_value_heads") or (heads if kind == "llama" else 0)
    return _Base(
        kind=kind,
        hidden=hidden,
        layers=size("num_hidden_layers"),
        queries=head * heads,
        keys=head * groups,
        inner=0 if kind in _EXPERTS else size("intermediate_size"),
        vocabulary=size("vocab_size"),
        is_text=text is config and "_vl" not in kind,
    )


def modules_of(names: Iterable[str]) -> set[str]:
    """The modules that have tensors of LoRA among `names`, without PEFT's prefix."""
    return {found["module"] for found in map(_TENSOR.fullmatch, names) if found}


def tensor_faults(
    shapes: Mapping[str, tuple[int, ...]], ranks: Collection[int], config: Mapping[str, Any] | None
) -> Iterator[str]:
    """What is wrong with an adapter's tensors, by name: one line for each kind of fault.

    `ranks`: those that its configuration gives modules, none if it is wrong; `config`: the base's, None if unknown.
    """
    found = {name: match for name in shapes if (match := _TENSOR.fullmatch(name))}
    # Modules named mtp. are skipped where a model has them (lora_skip_prefixes).
    others = [name for name in shapes if name not in found and not name.endswith(_OF_BASE) and "mtp." not in name]
    if not found:
        yield "it has no tensors of LoRA, such as NAME.lora_A.weight" + (f", but {_several(others)}" if others else "")
        return
    if others:
        yield f"vLLM takes tensors of LoRA alone, and does not know {_several(others)}"
    names = {(match["module"], match["half"] or match["table"]): name for name, match in found.items()}
    halves = {module: {half for half in "AB" if (module, half) in names} for module, _ in names}
    yield from _first(
        f"{names[module, half]} has no other half, lora_{'B' if half == 'A' else 'A'}"
        for module, (half, *more) in halves.items()
        if not more
    )
    # Experts stack theirs in one tensor, in several layouts.
    plain = {name: match for name, match in found.items() if ".experts" not in name and len(shapes[name]) == 2}
    base = _base_of(config)
    if ranks:
        yield from _first(_rank_faults(shapes, plain, ranks))
    if base:
        yield from _first(_size_faults(shapes, plain, base))
        yield from _first(_layer_faults(found, base))


def _first(faults: Iterable[str]) -> Iterator[str]:
    """The first of `faults`, and how many more there are: of another base all tensors are wrong."""
    found = [*faults]
    if found:
        yield found[0] + (f" ({len(found) - 1} more like that)" if found[1:] else "")


def _several(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _rank_faults(
    shapes: Mapping[str, tuple[int, ...]], found: Mapping[str, re.Match[str]], ranks: Collection[int]
) -> Iterator[str]:
    expected = " or ".join(map(str, sorted(ranks)))
    for name, match in found.items():
        rank = shapes[name][0 if (match["half"] or match["table"]) == "A" else 1]
        if rank not in ranks:
            yield f"{name} has shape {[*shapes[name]]}, but rank {expected} by adapter_config.json"


def _size_faults(
    shapes: Mapping[str, tuple[int, ...]], found: Mapping[str, re.Match[str]], base: _Base
) -> Iterator[str]:
    for name, match in found.items():
        if match["table"]:
            sizes = (base.vocabulary, base.hidden)
        elif (place := _LAYER.fullmatch(match["module"])) and place["before"] in _BEFORE:
            sizes = base.sizes(place["name"])
        else:
            continue
        is_a = (match["half"] or match["table"]) == "A"
        expected, size = (sizes[0], shapes[name][1]) if is_a else (sizes[1], shapes[name][0])
        if expected and size != expected:
            ends = "inputs" if is_a else "outputs"
            yield f"{name} has shape {[*shapes[name]]}, but the base has {expected} {ends} there"


def _layer_faults(found: Mapping[str, re.Match[str]], base: _Base) -> Iterator[str]:
    places = [(name, _LAYER.fullmatch(match["module"])) for name, match in found.items()]
    if base.is_text and all(place and place["before"] not in (None, "model.") for _, place in places):
        # vLLM would load it, and answer as the base does.
        yield f"the base has none of its modules: expected such as model.layers.0.self_attn.q_proj, got {places[0][0]}"
        return
    for name, place in places:
        if place and place["before"] in _BEFORE and base.layers and int(place["layer"]) >= base.layers:
            yield f"{name} is of a layer that the base does not have: it has {base.layers}"


def bytes_of_slot(
    config: Mapping[str, Any] | None, max_rank: int, dtype_bytes: int, targets: Collection[str] | None = None
) -> int | None:
    """About how many bytes of a device's memory one of vLLM's `max_loras` slots takes; None if that is not known.

    Each module has buffers for A and B of the highest rank, whatever adapters change (layers/base_linear.py,
    create_lora_weights). `targets`: lora_target_modules, None for all. Of one device; of several each has less.
    """
    base = _base_of(config)
    if not base or base.kind in _EXPERTS:
        return None
    sizes: list[tuple[int, int]] = []
    for module, slices in _SLICES.items():
        if targets is None or {module, *slices}.intersection(targets):
            # phi3 has the parts in one module itself.
            sizes += map(base.sizes, [module] if base.kind == "phi3" else slices)
    if not base.layers or not all(one and other for one, other in sizes):
        return None
    dimensions = base.layers * sum(map(sum, sizes))
    if base.kind in _WITH_VOCABULARY:
        tables = [name for name in ("embed_tokens", "lm_head") if targets is None or name in targets]
        dimensions += len(tables) * (base.vocabulary + base.hidden)
    return dimensions * max_rank * dtype_bytes
