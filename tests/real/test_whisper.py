"""Whisper tiny.en writes down what espeak-ng says, behind the local server as with transformers itself."""

from __future__ import annotations

import io
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from ..kit.examples import SERVER, run
from ..kit.hosts.host import Server
from ..kit.media.sounds import encoded, wav
from ..kit.media.spoken import SENTENCES, SPEEDS, spoken, words
from ..kit.models.packaged import packaged
from ..kit.pages import blocks_of
from ..kit.paths import DOCS
from ..kit.rows import each_row

pytestmark = [pytest.mark.engine, pytest.mark.once]

RATE = 16000
SAID = [(sentence, SPEEDS[at % len(SPEEDS)]) for at, sentence in enumerate(SENTENCES)]
"""Each sentence at one of the speeds."""


def loaded(sound: bytes, rate: int = RATE) -> Any:
    """Its samples."""
    from vllm.multimodal.media.audio import load_audio

    return load_audio(io.BytesIO(sound), sr=rate)[0]


@cache
def reference() -> tuple[Any, Any]:
    """transformers' model and what belongs to it."""
    import torch
    from transformers import WhisperForConditionalGeneration, WhisperProcessor

    directory = packaged("whisper-tiny.en")
    model: Any = WhisperForConditionalGeneration.from_pretrained(directory, dtype=torch.float32)
    return model, WhisperProcessor.from_pretrained(directory)


def expected(samples: Any, **arguments: Any) -> str:
    """What transformers writes down; `arguments` are those of long audio."""
    model, processor = reference()
    if arguments:
        arguments |= {"return_timestamps": True}
        features = processor(
            samples, sampling_rate=RATE, return_tensors="pt", truncation=False, padding="longest",
            return_attention_mask=True,
        )  # fmt: skip
    else:
        features = processor(samples, sampling_rate=RATE, return_tensors="pt")
    text: str = processor.tokenizer.decode(model.generate(**features, **arguments)[0], skip_special_tokens=True)
    return text


def client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=240)


def heard(server: Server, sound: bytes, name: str = "a.wav", **fields: Any) -> str:
    """What the server writes down."""
    return str(client(server).audio.transcriptions.create(model="m", file=(name, sound), **fields).text)


def test_what_is_said_is_written_down(whisper_server: Server) -> None:
    """By both: the same text, and the sentence."""
    wrong: list[tuple[str, int, str, str]] = []
    for sentence, speed in SAID:
        sound = spoken(sentence, speed)
        ours, theirs = heard(whisper_server, sound), expected(loaded(sound)).strip()
        if ours != theirs or words(ours) != words(sentence):
            wrong.append((sentence, speed, ours, theirs))
    assert not wrong


FILES = [("wav", 8000), ("wav", 48000), ("flac", 44100), ("ogg", 22050), ("mp3", 24000)]


@each_row(("kind", "rate"), FILES)
def test_it_may_come_in_any_file(kind: str, rate: int, whisper_server: Server) -> None:
    """In two channels, of which one is softer. From a telephone's 8,000 Hz both mishear a word."""
    sentence, speed = SAID[0]
    samples = loaded(spoken(sentence, speed), rate)
    sound = encoded(np.stack([samples, samples / 2], axis=1), rate, kind)
    text = heard(whisper_server, sound, f"a.{kind}")
    assert text == expected(loaded(sound)).strip()
    assert rate == FILES[0][1] or words(text) == words(sentence)
    raw = httpx.post(f"{whisper_server.url}/invocations", content=sound, headers={"content-type": f"audio/{kind}"})
    assert raw.json()["text"] == text


def test_silence_is_what_it_is_to_transformers(whisper_server: Server) -> None:
    silence = np.zeros(2 * RATE, np.float32)
    assert heard(whisper_server, wav(silence)) == expected(silence).strip()


def test_it_says_when_and_streams(whisper_server: Server) -> None:
    sentence, speed = SAID[1]
    sound = spoken(sentence, speed)
    lasts = len(loaded(sound)) / RATE
    verbose = client(whisper_server).audio.transcriptions.create(
        model="m", file=("a.wav", sound), response_format="verbose_json"
    )
    assert verbose.language == "en"
    assert verbose.duration == pytest.approx(lasts, abs=0.01)
    assert verbose.segments is not None
    assert words(" ".join(segment.text for segment in verbose.segments)) == words(sentence)
    assert 0 <= verbose.segments[0].start < verbose.segments[-1].end <= lasts
    stream = client(whisper_server).audio.transcriptions.create(model="m", file=("a.wav", sound), stream=True)
    events = [event.model_dump() for event in stream]
    assert len(events) > 3
    assert words("".join(event.get("delta") or "" for event in events)) == words(sentence)
    assert words(events[-1]["text"]) == words(sentence)


def test_the_pages_commands(whisper_server: Server, tmp_path: Path) -> None:
    """docs/audio-video.md's, as they stand."""
    sentence, speed = SAID[2]
    (tmp_path / "speech.wav").write_bytes(spoken(sentence, speed))
    (block,) = (block for block in blocks_of(DOCS / "audio-video.md") if "speech.wav" in block.text)
    commands = block.text.strip().splitlines()
    assert len(commands) == 4
    for command in commands:
        status, output, errors = run(command.replace(SERVER, whisper_server.url), tmp_path)
        assert status == 0, errors
        assert words(re.findall(r'"text": ?"([^"]*)"', output)[-1]) == words(sentence), command


def test_a_file_of_more_bytes_than_json_may_have(whisper_server: Server) -> None:
    """Of as many as OpenAI and SageMaker take."""
    sentence, speed = SAID[3]
    samples = loaded(spoken(sentence, speed), 48000)
    silence = np.zeros(100 * 48000 - len(samples), np.float32)
    sound = wav(np.stack([np.concatenate([samples, silence])] * 2, axis=1), 48000)
    assert 18 << 20 < len(sound) < 25 << 20
    assert words(heard(whisper_server, sound))[: len(words(sentence))] == words(sentence)


def wrong_words(text: str, said: list[str]) -> float:
    """Words that are wrong, missing or too many, for each that was said (the word error rate)."""
    found = words(text)
    row = list(range(len(found) + 1))
    for number, word in enumerate(said, 1):
        row, before = [number], row
        for place, other in enumerate(found, 1):
            row.append(min(before[place] + 1, row[-1] + 1, before[place - 1] + (word != other)))
    return row[-1] / len(said)


def test_five_minutes(whisper_server: Server) -> None:
    """Cut where it is quiet: at most two in a hundred words more are wrong than with transformers' long form."""
    pause = np.zeros(RATE * 3 // 4, np.float32)
    sentences, parts, seconds = list[str](), list[Any](), 0.0
    while seconds < 300:
        sentence, speed = SAID[len(sentences) % len(SAID)]
        samples = np.concatenate([loaded(spoken(sentence, speed)), pause])
        sentences.append(sentence)
        parts.append(samples)
        seconds += len(samples) / RATE
    whole = np.concatenate(parts)
    said = words(" ".join(sentences))
    form = {"file": ("a.wav", wav(whole), "audio/wav")}
    answer = httpx.post(f"{whisper_server.url}/v1/audio/transcriptions", files=form, timeout=240).raise_for_status()
    body = json.loads(answer.content)
    assert body["usage"]["seconds"] >= 300
    ours, theirs = wrong_words(body["text"], said), wrong_words(expected(whole, condition_on_prev_tokens=False), said)
    assert ours <= theirs + 0.02, (ours, theirs)
