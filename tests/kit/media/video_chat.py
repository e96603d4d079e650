"""A model that talks about videos and images, made on the spot: InternVL of a tiny tower and a tiny Qwen2, with random
weights.

Its answers mean nothing, but they are greedy, and other videos give other answers. Each frame that it is given is four
tokens, whatever its size, between words that number it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..models.vision import STRING_TEMPLATE, copy_tokenizer, template_of

EDGE, PATCH, LONGEST, HIDDEN = 56, 14, 2048, 128
"""Pixels of a frame's edges, and of a patch's; tokens of a prompt and its answer; numbers of a token's embedding."""
TOKENS = (EDGE // PATCH // 2) ** 2
"""Of a frame in the prompt."""
IMAGE, VIDEO = "<IMG_CONTEXT>", "<video>"
SPECIAL = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": IMAGE,
    "video_token": VIDEO,
}
"""By the names that the processor looks them up by."""

OPENAI_TEMPLATE = template_of(video="<video>\\n", image="<IMG_CONTEXT>\\n")


def build(directory: Path, demo_model: Path) -> Path:
    """Makes the model in `directory`, which must not exist, with the demo model's tokenizer."""
    import torch
    from transformers import (
        AutoTokenizer,
        GotOcr2ImageProcessor,
        InternVLConfig,
        InternVLForConditionalGeneration,
        InternVLProcessor,
        InternVLVideoProcessor,
    )

    copy_tokenizer(demo_model, directory)
    tokenizer: Any = AutoTokenizer.from_pretrained(directory, extra_special_tokens=SPECIAL)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", *SPECIAL.values()]})
    tokenizer.chat_template = OPENAI_TEMPLATE
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config = InternVLConfig(
        text_config={
            "model_type": "qwen2",
            "vocab_size": 704,
            "hidden_size": HIDDEN,
            "intermediate_size": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": LONGEST,
            "initializer_range": 0.2,
            "tie_word_embeddings": False,
            **ids,
        },
        vision_config={
            "model_type": "internvl_vision",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "image_size": [EDGE, EDGE],
            "patch_size": [PATCH, PATCH],
        },
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE),
        image_seq_length=TOKENS,
        tie_word_embeddings=False,
        **ids,
    )
    torch.manual_seed(7)
    model: Any = InternVLForConditionalGeneration(config).float()
    with torch.no_grad():
        for part in (model.model.vision_tower, model.model.multi_modal_projector):
            for name, parameter in part.named_parameters():
                if "norm" not in name:
                    parameter.normal_(0, 0.3)
    model.save_pretrained(directory)
    square = {"height": EDGE, "width": EDGE}
    of_videos = InternVLVideoProcessor(size=square)
    InternVLProcessor(
        image_processor=GotOcr2ImageProcessor(size=square, crop_to_patches=True, min_patches=1, max_patches=4),
        tokenizer=tokenizer,
        video_processor=of_videos,
        image_seq_length=TOKENS,
        chat_template=OPENAI_TEMPLATE,
    ).save_pretrained(directory)
    # As published models have it, in a file of its own: without it vLLM 0.26 cannot choose how a video is read.
    of_videos.save_pretrained(directory)
    generation = {"do_sample": False, "eos_token_id": tokenizer.eos_token_id}
    (directory / "generation_config.json").write_text(json.dumps(generation))
    (directory / "strings.jinja").write_text(STRING_TEMPLATE)
    return directory
