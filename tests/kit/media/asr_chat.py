"""A model that talks about sounds and writes them down, made on the spot: Qwen3-ASR of a tiny encoder and a tiny Qwen3,
with random weights.

Its answers mean nothing, but they are greedy, and other sounds give other answers. A second of sound is 13 tokens; what
is to be written down is cut into pieces of two seconds, not of thirty: five seconds are three.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..models.vision import copy_tokenizer, template_of

RATE, CHUNK, LONGEST = 16000, 2, 2048
"""Samples a second; seconds of a piece; tokens of a prompt and its answer."""
AUDIO = "<|audio_pad|>"
SPECIAL = {"audio_token": AUDIO, "audio_bos_token": "<|audio_start|>", "audio_eos_token": "<|audio_end|>"}
"""By the names that the processor looks them up by."""
PUBLISHED = {
    "model.language_model.": "thinker.model.",
    "model.audio_tower.": "thinker.audio_tower.",
    "model.multi_modal_projector.linear_1.": "thinker.audio_tower.proj1.",
    "model.multi_modal_projector.linear_2.": "thinker.audio_tower.proj2.",
    "lm_head.": "thinker.lm_head.",
}
"""Prefixes of weights as Qwen has them; by those of transformers vLLM finds no head of its own."""
TEXT = "<asr_text>"
"""What stands before the text that is written down; no special token."""

TEMPLATE = "{{- bos_token }}\n" + template_of(audio="<|audio_start|><|audio_pad|><|audio_end|>")


def build(directory: Path, demo_model: Path) -> Path:
    """Makes the model in `directory`, which must not exist, with the demo model's tokenizer."""
    import torch
    from safetensors.torch import save_file
    from transformers import (
        AddedToken,
        AutoTokenizer,
        Qwen3ASRConfig,
        Qwen3ASRForConditionalGeneration,
        Qwen3ASRProcessor,
        WhisperFeatureExtractor,
    )

    copy_tokenizer(demo_model, directory)
    tokenizer: Any = AutoTokenizer.from_pretrained(directory, extra_special_tokens=SPECIAL)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", *SPECIAL.values()]})
    tokenizer.add_tokens([AddedToken(TEXT, normalized=False, special=False)])
    tokenizer.chat_template = TEMPLATE
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config = Qwen3ASRConfig(
        text_config={
            "model_type": "qwen3",
            "vocab_size": 704,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "max_position_embeddings": LONGEST,
            "initializer_range": 0.2,
            "tie_word_embeddings": False,
            **ids,
        },
        audio_config={
            "model_type": "qwen3_asr_encoder",
            "num_mel_bins": 16,
            "d_model": 64,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "downsample_hidden_size": 16,
            "output_dim": 128,
        },
        audio_token_id=tokenizer.convert_tokens_to_ids(AUDIO),
        tie_word_embeddings=False,
        **ids,
    )
    torch.manual_seed(7)
    model: Any = Qwen3ASRForConditionalGeneration(config).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ("audio_tower" in name or "multi_modal_projector" in name) and "norm" not in name:
                parameter.normal_(0, 0.3)
    weights: dict[str, Any] = {}
    for name, weight in model.state_dict().items():
        prefix = next(prefix for prefix in PUBLISHED if name.startswith(prefix))
        weights[PUBLISHED[prefix] + name.removeprefix(prefix)] = weight.contiguous()
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    config.architectures = [type(model).__name__]
    config.save_pretrained(directory)
    Qwen3ASRProcessor(
        feature_extractor=WhisperFeatureExtractor(
            feature_size=16, chunk_length=CHUNK, sampling_rate=RATE, return_attention_mask=True
        ),
        tokenizer=tokenizer,
        chat_template=TEMPLATE,
    ).save_pretrained(directory)
    generation = {"do_sample": False, "eos_token_id": tokenizer.eos_token_id}
    (directory / "generation_config.json").write_text(json.dumps(generation))
    return directory
