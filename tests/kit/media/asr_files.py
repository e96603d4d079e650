"""Models that write down what is said, without their weights: what vLLM makes prompts by.

    FILES: a name --its function--> config.json, the processor's files, the demo model's tokenizer

With the models of asr_chat.py and voxtral.py each way in which vLLM's classes make a prompt is here: as text or as
tokens, by a chat template or not, with a language or without.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..models.vision import STRING_TEMPLATE, copy_tokenizer

__all__ = ["FILES"]

RATE = 16000
TEXT: dict[str, Any] = {
    "vocab_size": 704, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 2048,
}  # fmt: skip


def _tokenizer(directory: Path, demo_model: Path, *special: str) -> Any:
    """The demo model's with tokens of the model's own, saved in a directory that does not exist yet."""
    from transformers import AutoTokenizer

    copy_tokenizer(demo_model, directory)
    tokenizer: Any = AutoTokenizer.from_pretrained(directory)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", *special]})
    tokenizer.chat_template = STRING_TEMPLATE
    tokenizer.save_pretrained(directory)
    return tokenizer


def glm(directory: Path, demo_model: Path) -> None:
    """GLM-ASR: tokens, by the chat template; it takes no notice of a language. Pieces are 655 seconds long."""
    from transformers import GlmAsrConfig, GlmAsrProcessor, WhisperFeatureExtractor

    tokenizer = _tokenizer(directory, demo_model, "<|begin_of_audio|>", "<|pad|>", "<|end_of_audio|>")
    encoder = {
        "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_mel_bins": 16,
    }  # fmt: skip
    token = tokenizer.convert_tokens_to_ids("<|pad|>")
    config = GlmAsrConfig(text_config={**TEXT}, audio_config=encoder, audio_token_id=token)
    config.architectures = ["GlmAsrForConditionalGeneration"]
    config.save_pretrained(directory)
    extractor = WhisperFeatureExtractor(feature_size=16, sampling_rate=RATE)
    GlmAsrProcessor(extractor, tokenizer, chat_template=STRING_TEMPLATE).save_pretrained(directory)


def fun(directory: Path, demo_model: Path) -> None:
    """Fun-ASR: text, with words to listen for; English where nothing is said. Pieces are two seconds long."""
    from transformers import Qwen3Config

    _tokenizer(directory, demo_model, "<|AUDIO|>")
    config = Qwen3Config(**TEXT)
    config.architectures = ["FunASRForConditionalGeneration"]
    config.save_pretrained(directory)
    extractor = {
        "feature_extractor_type": "FunASRFeatureExtractor", "processor_class": "FunASRProcessor", "feature_size": 80,
        "sampling_rate": RATE, "hop_length": 160, "n_fft": 400, "chunk_length": 2,
        "frontend_conf": {"cmvn_file": None, "lfr_m": 7, "lfr_n": 6},
    }  # fmt: skip
    (directory / "preprocessor_config.json").write_text(json.dumps(extractor), "utf-8")


FILES: Mapping[str, Callable[[Path, Path], None]] = {"GLM-ASR": glm, "Fun-ASR": fun}
