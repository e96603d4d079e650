"""A model directory for agents: Qwen3's vocabulary and chat template, on an architecture that takes images.

There are no weights: tests/kit/played says what is to be said.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from ..models.vocabularies import TINY, vocabulary

__all__ = ["CONTEXT", "NAME", "build"]

NAME = "qwen3"
CONTEXT = 65536
PATCH = 14
EDGE = 4 * PATCH
"""Of the smallest image, in pixels; it is four tokens."""

CONFIG: dict[str, Any] = {
    **TINY,
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "vocab_size": 151936,
    "eos_token_id": 151645,
    "max_position_embeddings": CONTEXT,
    "image_token_id": 151655,
    "video_token_id": 151656,
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
    "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
    "vision_config": {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 4,
        "out_hidden_size": 64,
        "patch_size": PATCH,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 8 * PATCH,
        "fullatt_block_indexes": [1],
    },
}
PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
    "patch_size": PATCH,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "min_pixels": EDGE**2,
    "max_pixels": (2 * EDGE) ** 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
PROPERTIES = {
    "engine": "Python",
    "option.entryPoint": "lmi.handler",
    "option.dtype": "fp32",
    "option.load_format": "dummy",
    "option.enforce_eager": "true",
    "option.served_model_name": NAME,
    "option.max_model_len": str(CONTEXT),
    "option.enable_auto_tool_choice": "true",
    "option.tool_call_parser": "hermes",
    "option.reasoning_parser": "qwen3",
}
"""As a user writes them for Qwen3, but for the weights."""


def build(folder: Path) -> Path:
    """Makes the directory, which must not exist."""
    folder.mkdir(parents=True)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(vocabulary("qwen3") / file, folder / file)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    (folder / "serving.properties").write_text("".join(f"{name}={value}\n" for name, value in PROPERTIES.items()))
    return folder
