"""LoRA adapters as PEFT writes them, for llama-like models: made of numpy alone, whatever is installed."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["LLAMA", "SEVEN", "adapter_config", "adapter_tensors", "safetensors_of", "write_adapter"]

SEVEN = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The projections of a llama's layer."""
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}
"""config.json of a small model."""


def write_adapter(
    directory: Path,
    base_config: Mapping[str, Any],
    *,
    rank: int = 8,
    alpha: float = 16,
    targets: Iterable[str] = SEVEN,
    seed: int = 0,
    scale: float = 0.1,
    **config: Any,
) -> Path:
    """An adapter for the model of `base_config`, in `directory`, which is made; returned.

    The elements of A and B are normal with the deviation `scale`, float32, and the same for the same seed. `config`:
    further fields of adapter_config.json, or other values of those that it has.
    """
    directory.mkdir(parents=True, exist_ok=True)
    said = adapter_config(rank=rank, alpha=alpha, targets=targets, **config)
    directory.joinpath("adapter_config.json").write_text(json.dumps(said, indent=2))
    tensors = adapter_tensors(base_config, rank=rank, targets=targets, seed=seed, scale=scale)
    directory.joinpath("adapter_model.safetensors").write_bytes(safetensors_of(tensors))
    return directory


def adapter_config(
    *, rank: int = 8, alpha: float = 16, targets: Iterable[str] = SEVEN, **config: Any
) -> dict[str, Any]:
    """adapter_config.json, with the fields that PEFT 0.19 writes."""
    return {
        "alpha_pattern": {},
        "auto_mapping": None,
        "base_model_name_or_path": "owner/tiny-llama",
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "layer_replication": None,
        "layers_pattern": None,
        "layers_to_transform": None,
        "lora_alpha": alpha,
        "lora_bias": False,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": rank,
        "rank_pattern": {},
        "revision": None,
        "target_modules": [*targets],
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": False,
        **config,
    }


def adapter_tensors(
    base_config: Mapping[str, Any],
    *,
    rank: int = 8,
    targets: Iterable[str] = SEVEN,
    seed: int = 0,
    scale: float = 0.1,
    prefix: str = "base_model.model.model.",
) -> dict[str, np.ndarray[Any, Any]]:
    """A ([rank, in]) and B ([out, rank]) of the modules `targets` of each layer, by PEFT's names."""
    random = np.random.default_rng(seed)
    hidden, heads = base_config["hidden_size"], base_config["num_attention_heads"]
    head = base_config.get("head_dim") or hidden // heads
    groups, inner = base_config.get("num_key_value_heads") or heads, base_config["intermediate_size"]
    sizes = {
        "q_proj": ("self_attn", hidden, heads * head),
        "k_proj": ("self_attn", hidden, groups * head),
        "v_proj": ("self_attn", hidden, groups * head),
        "o_proj": ("self_attn", heads * head, hidden),
        "gate_proj": ("mlp", hidden, inner),
        "up_proj": ("mlp", hidden, inner),
        "down_proj": ("mlp", inner, hidden),
    }
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for layer in range(base_config["num_hidden_layers"]):
        for target in targets:
            part, inputs, outputs = sizes[target]
            module = f"{prefix}layers.{layer}.{part}.{target}"
            for half, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
                drawn = random.standard_normal(shape) * scale
                tensors[f"{module}.lora_{half}.weight"] = drawn.astype(np.float32)
    return tensors


def safetensors_of(tensors: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """A file of safetensors with tensors of float32: 8 bytes of the header's length, the header, the data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": [*tensor.shape], "data_offsets": [end, end + tensor.nbytes]}
        end += tensor.nbytes
    head = json.dumps(header).encode()
    return struct.pack("<Q", len(head)) + head + b"".join(tensor.tobytes() for tensor in tensors.values())
