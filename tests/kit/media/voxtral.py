"""Voxtral, made on the spot: a tiny model with Mistral's tokenizer that hears, in Mistral's own form, without weights
(option.load_format=dummy).

    voxtral_directory --> tekken.json, params.json

A second of sound is 12.5 tokens, and each sound is filled up to whole pieces of two seconds, not of thirty.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..models.mistral import mistral_directory

__all__ = ["voxtral_directory"]

RATE, BINS, WIDTH, FACTOR = 16000, 16, 64, 4
CHUNK = 2
"""Seconds."""
HEARD = {"[AUDIO]": 24, "[BEGIN_AUDIO]": 25, "[TRANSCRIBE]": 34}
"""Tokens, with the ids that Mistral's have."""
FILLER = "[PLACE_{}]"


def voxtral_directory(folder: Path) -> Path:
    """Makes a model in `folder`, which must not exist."""
    mistral_directory(folder, "v7")
    words: int = json.loads((folder / "config.json").read_bytes())["vocab_size"]
    (folder / "config.json").unlink()
    tokenizer: dict[str, Any] = json.loads((folder / "tekken.json").read_bytes())
    names = {token: name for name, token in HEARD.items()}
    tokenizer["special_tokens"] += [
        {"rank": rank, "token_str": names.get(rank, FILLER.format(rank)), "is_control": True}
        for rank in range(len(tokenizer["special_tokens"]), max(names) + 1)
    ]
    spectrogram = {"num_mel_bins": BINS, "hop_length": 160, "window_size": 400}
    tokenizer["audio"] = {
        "sampling_rate": RATE, "frame_rate": 12.5, "audio_encoding_config": spectrogram, "chunk_length_s": CHUNK,
    }  # fmt: skip
    (folder / "tekken.json").write_text(json.dumps(tokenizer), "utf-8")
    encoder = {
        "audio_encoding_args": {**spectrogram, "sampling_rate": RATE},
        "dim": WIDTH, "n_layers": 1, "head_dim": 32, "hidden_dim": WIDTH, "n_heads": 2, "vocab_size": words,
        "max_source_positions": 100 * CHUNK // 2,
    }  # fmt: skip
    params = {
        "dim": WIDTH, "n_layers": 1, "head_dim": 32, "hidden_dim": WIDTH, "n_heads": 2, "n_kv_heads": 1,
        "rope_theta": 1e6, "norm_eps": 1e-5, "vocab_size": words, "max_position_embeddings": 2048, "dtype": "float32",
        "multimodal": {
            "whisper_model_args": {"encoder_args": encoder, "downsample_args": {"downsample_factor": FACTOR}}
        },
    }  # fmt: skip
    (folder / "params.json").write_text(json.dumps(params), "utf-8")
    # By its name vLLM knows Mistral's own form.
    (folder / "consolidated.safetensors").touch()
    return folder
