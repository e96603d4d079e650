"""A model that hears, sees and hears what it sees, as far as its prompts go: the processor and the configuration of a
tiny Qwen2.5-Omni, without weights (option.load_format=dummy).
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from ..models.vision import copy_tokenizer, template_of

SPECIAL = {
    "image_token": "<|IMAGE|>",
    "audio_token": "<|AUDIO|>",
    "video_token": "<|VIDEO|>",
    "vision_bos_token": "<|vision_bos|>",
    "vision_eos_token": "<|vision_eos|>",
    "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
}
"""By the names that the processor looks them up by."""
LEAST, MOST = 56 * 56, 112 * 112
"""Pixels of a frame."""
HIDDEN, BINS = 128, 16
OPENAI_TEMPLATE = template_of(
    video="<|vision_bos|><|VIDEO|><|vision_eos|>",
    image="<|vision_bos|><|IMAGE|><|vision_eos|>",
    audio="<|audio_bos|><|AUDIO|><|audio_eos|>",
)


def build(directory: Path, demo_model: Path) -> Path:
    """Makes it in `directory`, which must not exist, with the demo model's tokenizer."""
    from transformers import (
        AutoTokenizer,
        Qwen2_5OmniConfig,
        Qwen2_5OmniProcessor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
        WhisperFeatureExtractor,
    )

    copy_tokenizer(demo_model, directory)
    tokenizer: Any = AutoTokenizer.from_pretrained(directory, extra_special_tokens=SPECIAL)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", *SPECIAL.values()]})
    tokenizer.chat_template = OPENAI_TEMPLATE
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    kinds = {kind: tokenizer.convert_tokens_to_ids(f"<|{kind.upper()}|>") for kind in ("image", "audio", "video")}
    config = Qwen2_5OmniConfig(
        enable_audio_output=False,
        thinker_config={
            "audio_config": {
                "num_mel_bins": BINS,
                "d_model": 64,
                "encoder_layers": 1,
                "encoder_attention_heads": 2,
                "encoder_ffn_dim": 64,
                "output_dim": HIDDEN,
            },
            "vision_config": {
                "depth": 1,
                "hidden_size": 64,
                "intermediate_size": 64,
                "num_heads": 2,
                "out_hidden_size": HIDDEN,
                "fullatt_block_indexes": [0],
            },
            "text_config": {
                "model_type": "qwen2_5_omni_text",
                "vocab_size": 704,
                "hidden_size": HIDDEN,
                "intermediate_size": 256,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "max_position_embeddings": 2048,
                "rope_scaling": {"mrope_section": [4, 6, 6], "rope_type": "default", "type": "default"},
                **ids,
            },
            **{f"{kind}_token_index": token for kind, token in kinds.items()},
            **{f"{kind}_token_id": token for kind, token in kinds.items()},
            **ids,
        },
    )
    config.architectures = ["Qwen2_5OmniModel"]
    config.save_pretrained(directory)
    pixels: dict[str, Any] = {"min_pixels": LEAST, "max_pixels": MOST}
    of_videos = Qwen2VLVideoProcessor(**pixels)
    Qwen2_5OmniProcessor(
        image_processor=Qwen2VLImageProcessor(**pixels),
        video_processor=of_videos,
        feature_extractor=WhisperFeatureExtractor(feature_size=BINS, sampling_rate=16000),
        tokenizer=tokenizer,
        chat_template=OPENAI_TEMPLATE,
    ).save_pretrained(directory)
    # As published models have it, in a file of its own (video_chat.py).
    of_videos.save_pretrained(directory)
    generation = {"do_sample": False, "eos_token_id": tokenizer.eos_token_id}
    (directory / "generation_config.json").write_text(json.dumps(generation))
    return directory


def talkie(seconds: int = 2) -> bytes:
    """A video in which a tone is heard: MPEG-4 and AAC in an MP4."""
    import av

    written, rate = io.BytesIO(), 16000
    with av.open(written, "w", format="mp4") as file:
        seen: Any = file.add_stream("mpeg4", rate=8)
        seen.width, seen.height, seen.pix_fmt = 64, 48, "yuv420p"
        heard: Any = file.add_stream("aac", rate=rate)
        for number in range(8 * seconds):
            picture = np.full((48, 64, 3), number * 10 % 256, np.uint8)
            file.mux(seen.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(seen.encode())
        tone = (np.sin(np.arange(rate * seconds) * 0.1) * 8000).astype(np.int16)[None]
        samples = av.AudioFrame.from_ndarray(tone, format="s16", layout="mono")
        samples.sample_rate = rate
        file.mux(heard.encode(samples))
        file.mux(heard.encode())
    return written.getvalue()
