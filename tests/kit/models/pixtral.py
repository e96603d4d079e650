"""Pixtral, made on the spot: a tiny model with Mistral's tokenizer that takes images, in Mistral's own form.

    IMAGES: a name --pixtral_directory--> tekken.json, params.json, consolidated.safetensors

Its weights are random: answers mean nothing, but other images give other ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .mistral import mistral_directory

__all__ = ["IMAGES", "PATCH", "pixtral_directory", "why_not"]

IMAGES: Mapping[str, int] = {"v3": 1, "v7": 2, "v11": 2, "v13 think": 2, "v15": 2}
"""By the name of a tokenizer: how many patches a token of an image is wide. Pixtral 12B's is 3, Mistral Small's 7 (3.1)
and 11 (3.2), Magistral's and Ministral 3's 13."""
PATCH, EDGE = 16, 128
"""Pixels of a patch; of the longest edge of an image that is not made smaller."""
WIDTH = 64


def why_not() -> str | None:
    """Why this vLLM does not load Pixtral: before 0.32 it does not with transformers from 5.17 on."""
    try:
        import vllm.model_executor.models.pixtral  # noqa: F401
    except ImportError as error:
        return f"this vLLM does not load Pixtral: {error}"
    return None


def pixtral_directory(folder: Path, name: str) -> Path:
    """Makes a model with the tokenizer of that name in `folder`, which must not exist."""
    import torch
    from safetensors.torch import save_file

    mistral_directory(folder, name)
    words: int = json.loads((folder / "config.json").read_bytes())["vocab_size"]
    (folder / "config.json").unlink()
    merged = IMAGES[name]
    tokenizer: dict[str, Any] = json.loads((folder / "tekken.json").read_bytes())
    tokenizer["image"] = {"image_patch_size": PATCH, "max_image_size": EDGE, "spatial_merge_size": merged}
    (folder / "tekken.json").write_text(json.dumps(tokenizer), "utf-8")
    vision: dict[str, Any] = {
        "hidden_size": WIDTH, "num_channels": 3, "image_size": EDGE, "patch_size": PATCH, "rope_theta": 1e4,
        "intermediate_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2, "image_token_id": 10,
    }  # fmt: skip
    if merged > 1:
        vision |= {
            "spatial_merge_size": merged, "mm_projector_id": "patch_merge", "add_pre_mm_projector_layer_norm": True,
            "adapter_bias": False,
        }  # fmt: skip
    params = {
        "dim": WIDTH, "n_layers": 1, "head_dim": 32, "hidden_dim": WIDTH, "n_heads": 2, "n_kv_heads": 1,
        "rope_theta": 1e6, "norm_eps": 1e-5, "vocab_size": words, "max_position_embeddings": 4096, "dtype": "float32",
        "vision_encoder": vision,
    }  # fmt: skip
    (folder / "params.json").write_text(json.dumps(params), "utf-8")
    torch.manual_seed(7)
    weights = {
        weight: torch.ones(shape) if "norm" in weight or "ln_pre" in weight else torch.randn(shape) * 0.3
        for weight, shape in _shapes(words, merged)
    }
    save_file(weights, folder / "consolidated.safetensors")
    return folder


def _shapes(words: int, merged: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The weights by their names, and their shapes."""
    yield from (("tok_embeddings.weight", (words, WIDTH)), ("norm.weight", (WIDTH,)), ("output.weight", (words, WIDTH)))
    for layer, of_keys in (("layers.0", WIDTH // 2), ("vision_encoder.transformer.layers.0", WIDTH)):
        for norm in ("attention_norm", "ffn_norm"):
            yield f"{layer}.{norm}.weight", (WIDTH,)
        for matrix in ("attention.wq", "attention.wo", "feed_forward.w1", "feed_forward.w2", "feed_forward.w3"):
            yield f"{layer}.{matrix}.weight", (WIDTH, WIDTH)
        for matrix in ("attention.wk", "attention.wv"):
            yield f"{layer}.{matrix}.weight", (of_keys, WIDTH)
    yield "vision_encoder.patch_conv.weight", (WIDTH, 3, PATCH, PATCH)
    yield "vision_encoder.ln_pre.weight", (WIDTH,)
    for matrix in ("w_in", "w_out"):
        yield f"vision_language_adapter.{matrix}.weight", (WIDTH, WIDTH)
        if merged == 1:
            yield f"vision_language_adapter.{matrix}.bias", (WIDTH,)
    if merged > 1:
        yield "pre_mm_projector_norm.weight", (WIDTH,)
        yield "patch_merger.merging_layer.weight", (WIDTH, merged**2 * WIDTH)
