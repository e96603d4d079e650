"""A model that takes images, made on the spot: LLaVA of a tiny CLIP tower and a tiny Llama, with random weights.

Its answers mean nothing, but they are greedy, and other images give other answers. An image is four tokens.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

IMAGE = "<image>"
TOKENS = 4
"""Of one image in the prompt."""

OPENAI_TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}{{- message.content }}{%- else %}
        {%- for part in message.content %}
            {%- if part.type == 'image' %}{{- '<image>' }}{%- else %}{{- part.text }}{%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
"""Takes parts, and says itself where an image stands."""

STRING_TEMPLATE = """\
{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
"""Takes text; vLLM puts the placeholders before it."""


def build(directory: Path, demo_model: Path) -> Path:
    """Makes the model in `directory`, which must not exist, with the demo model's tokenizer."""
    import torch
    from transformers import (
        AutoTokenizer,
        CLIPImageProcessor,
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
        LlavaProcessor,
    )

    directory.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(demo_model / name, directory / name)
    tokenizer: Any = AutoTokenizer.from_pretrained(directory)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", IMAGE]})
    tokenizer.chat_template = OPENAI_TEMPLATE
    vision = CLIPVisionConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14
    )
    text = LlamaConfig(
        vocab_size=704,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=2048,
        initializer_range=0.2,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        image_seq_length=TOKENS,
    )
    torch.manual_seed(7)
    model: Any = LlavaForConditionalGeneration(config).float()
    with torch.no_grad():
        for parameter in model.model.multi_modal_projector.parameters():
            parameter.normal_(0, 0.5)
    model.save_pretrained(directory)
    LlavaProcessor(
        image_processor=CLIPImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}),
        tokenizer=tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        image_token=IMAGE,
        num_additional_image_tokens=1,
        chat_template=OPENAI_TEMPLATE,
    ).save_pretrained(directory)
    generation = {"do_sample": False, "eos_token_id": tokenizer.eos_token_id}
    (directory / "generation_config.json").write_text(json.dumps(generation))
    (directory / "strings.jinja").write_text(STRING_TEMPLATE)
    return directory
