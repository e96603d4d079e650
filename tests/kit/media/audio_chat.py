"""A model that talks about sounds, made on the spot: Qwen2-Audio of a tiny encoder and a tiny Qwen2, with random
weights.

Its answers mean nothing, but they are greedy, and other sounds give other answers. A second of sound is 25 tokens; what
is longer than thirty seconds is cut off. vLLM takes no other encoder than one of thirty seconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..models.vision import STRING_TEMPLATE, copy_tokenizer

RATE, LONGEST = 16000, 2048
"""Samples a second; tokens of a prompt and its answer."""
SPECIAL = ("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>")
PUBLISHED = {
    "model.language_model.": "language_model.model.",
    "lm_head.": "language_model.lm_head.",
    "model.": "",
}
"""Prefixes of weights as vLLM reads them, and Qwen has them; what transformers writes itself has others before 5.23."""

OPENAI_TEMPLATE = """\
{%- set count = namespace(audios=0) %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}{{- message.content }}{%- else %}
        {%- for part in message.content %}
            {%- if part.type == 'audio' %}
                {%- set count.audios = count.audios + 1 %}
                {{- 'Audio ' ~ count.audios ~ ': <|audio_bos|><|AUDIO|><|audio_eos|>\\n' }}
            {%- else %}{{- part.text }}{%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
"""Takes parts, and says itself where a sound stands."""


def tokens(seconds: float) -> int:
    """Of a sound in the prompt."""
    frames = int(min(seconds, 30) * RATE) // 160
    return (((frames - 1) // 2 + 1) - 2) // 2 + 1


def build(directory: Path, demo_model: Path) -> Path:
    """Makes the model in `directory`, which must not exist, with the demo model's tokenizer."""
    import torch
    from safetensors.torch import save_file
    from transformers import (
        AutoTokenizer,
        Qwen2AudioConfig,
        Qwen2AudioForConditionalGeneration,
        Qwen2AudioProcessor,
        WhisperFeatureExtractor,
    )

    copy_tokenizer(demo_model, directory)
    tokenizer: Any = AutoTokenizer.from_pretrained(directory)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", *SPECIAL]})
    tokenizer.chat_template = OPENAI_TEMPLATE
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config = Qwen2AudioConfig(
        text_config={
            "model_type": "qwen2",
            "vocab_size": 704,
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": LONGEST,
            "initializer_range": 0.2,
            "tie_word_embeddings": False,
            **ids,
        },
        audio_config={
            "model_type": "qwen2_audio_encoder",
            "num_mel_bins": 16,
            "d_model": 64,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "max_source_positions": 1500,
        },
        audio_token_index=tokenizer.convert_tokens_to_ids("<|AUDIO|>"),
        **ids,
    )
    torch.manual_seed(7)
    model: Any = Qwen2AudioForConditionalGeneration(config).float()
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
    Qwen2AudioProcessor(
        feature_extractor=WhisperFeatureExtractor(feature_size=16, sampling_rate=RATE),
        tokenizer=tokenizer,
        chat_template=OPENAI_TEMPLATE,
    ).save_pretrained(directory)
    generation = {"do_sample": False, "eos_token_id": tokenizer.eos_token_id}
    (directory / "generation_config.json").write_text(json.dumps(generation))
    (directory / "strings.jinja").write_text(STRING_TEMPLATE)
    return directory
