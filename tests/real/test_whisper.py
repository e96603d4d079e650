"""Whisper tiny.en, as it was converted, writes down with transformers what espeak-ng says."""

from __future__ import annotations

import io
from typing import Any

import pytest

from ..kit.media.spoken import SENTENCES, SPEEDS, spoken, words
from ..kit.models.packaged import packaged

pytestmark = [pytest.mark.engine, pytest.mark.once]


def test_what_is_said_is_written_down() -> None:
    """Each sentence at one of the speeds."""
    said = [(sentence, SPEEDS[at % len(SPEEDS)]) for at, sentence in enumerate(SENTENCES)]
    sounds = [spoken(*one) for one in said]
    directory = packaged("whisper-tiny.en")
    import torch
    from transformers import WhisperForConditionalGeneration, WhisperProcessor
    from vllm.multimodal.media.audio import load_audio

    processor: Any = WhisperProcessor.from_pretrained(directory)
    model: Any = WhisperForConditionalGeneration.from_pretrained(directory, dtype=torch.float32)
    rate = processor.feature_extractor.sampling_rate
    wrong: list[tuple[str, int, str]] = []
    for (sentence, speed), sound in zip(said, sounds, strict=True):
        samples, _ = load_audio(io.BytesIO(sound), sr=rate)
        ids = model.generate(**processor(samples, sampling_rate=rate, return_tensors="pt"))[0]
        text = processor.tokenizer.decode(ids, skip_special_tokens=True)
        if words(text) != words(sentence):
            wrong.append((sentence, speed, text))
    assert not wrong
