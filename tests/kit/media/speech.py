"""A model that writes down what is said, made on the spot: a multilingual Whisper of one layer, with random weights.

Its answers mean nothing, but they are greedy, and other sounds give other answers. They are as long as they may be, and
have points in time in them wherever these happen to be likely. A piece of sound is two seconds long, not thirty: five
seconds of it are cut into three.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RATE, CHUNK, POSITIONS, LONGEST = 16000, 2, 100, 448
"""Samples a second; seconds of a piece; the encoder's outputs for it; tokens of a prompt and its answer."""
END, START, NO_TIMES = "<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"
TASKS = ("<|translate|>", "<|transcribe|>")
OTHERS = ("<|startoflm|>", "<|startofprev|>", "<|nospeech|>")
TIMES = tuple(f"<|{hundredths / 100:.2f}|>" for hundredths in range(0, 100 * CHUNK + 1, 2))
"""As in OpenAI's, no special tokens, and the last ones of all."""


def build(directory: Path, demo_model: Path) -> Path:
    """Makes the model in `directory`, which must not exist, with the demo model's words."""
    import torch
    from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration, WhisperProcessor
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    directory.mkdir(parents=True)
    languages = [f"<|{code}|>" for code in LANGUAGES]
    tokenizer = _tokenizer(demo_model, languages)
    ids: dict[str, int] = tokenizer.get_vocab()
    end, start = ids[END], ids[START]
    of_model: dict[str, Any] = {
        "decoder_start_token_id": start,
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
    }
    config = WhisperConfig(
        vocab_size=len(ids),
        num_mel_bins=80,
        d_model=64,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=POSITIONS,
        max_target_positions=LONGEST,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        **of_model,
    )
    torch.manual_seed(7)
    model: Any = WhisperForConditionalGeneration(config).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name and "encoder.embed_positions" not in name:
                parameter.normal_(0, 0.3)
        # They are the head as well: a special token is never the likeliest, nor is a byte that is no text by itself.
        for rare in (slice(ids["~"] + 1, 256), slice(end, ids[TIMES[0]])):
            model.model.decoder.embed_tokens.weight[rare] *= 0.3
    model.save_pretrained(directory)
    WhisperProcessor(
        feature_extractor=WhisperFeatureExtractor(feature_size=80, chunk_length=CHUNK, sampling_rate=RATE),
        tokenizer=tokenizer,
    ).save_pretrained(directory)
    generation = {
        **of_model,
        "do_sample": False,
        "is_multilingual": True,
        "lang_to_id": {language: ids[language] for language in languages},
        "max_initial_timestamp_index": 50,
        "max_length": LONGEST,
        "no_timestamps_token_id": ids[NO_TIMES],
        "prev_sot_token_id": ids["<|startofprev|>"],
        "return_timestamps": False,
        "task_to_id": {task.strip("<|>"): ids[task] for task in TASKS},
    }
    (directory / "generation_config.json").write_text(json.dumps(generation))
    return directory


def _tokenizer(demo_model: Path, languages: list[str]) -> Any:
    """OpenAI's order of tokens, after the demo model's words."""
    from transformers import AddedToken, WhisperTokenizer

    words = json.loads((demo_model / "tokenizer.json").read_bytes())["model"]
    tokenizer: Any = WhisperTokenizer(vocab=words["vocab"], merges=[tuple(pair) for pair in words["merges"]])
    special = [START, *languages, *TASKS, *OTHERS, NO_TIMES]
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.add_tokens([AddedToken(time, normalized=False, special=False) for time in TIMES])
    tokenizer.set_prefix_tokens()
    return tokenizer
