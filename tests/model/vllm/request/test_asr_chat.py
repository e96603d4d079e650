"""A model that both talks about audio and writes it down: Qwen3-ASR, with random weights, and with answers that a test
says.
"""

from __future__ import annotations

import base64
import io
import json
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ....kit.api.options import make_settings
from ....kit.api.types import Conversation, Generation, MediaFile, Sampling
from ....kit.engines.backends import NUMBERS, deltas
from ....kit.engines.said import SaidEngine
from ....kit.engines.start import in_process
from ....kit.engines.transcribed import asked, events_of, five_seconds, one_second, prepared, texts
from ....kit.hosts.host import model_directory
from ....kit.media import asr_chat
from ....kit.media.sounds import noise, tone, wav
from ....kit.rows import each_row

pytestmark = pytest.mark.engine

OPTIONS = {"max_model_len": "2048", "dtype": "fp32", "enforce_eager": "true", "kv_cache_memory_bytes": "33554432"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, demo_model: Path) -> Path:
    folder = tmp_path_factory.mktemp("asr")
    return model_directory(asr_chat.build(folder / "built", demo_model), folder / "model", {})


@pytest.fixture(scope="module")
def backend(directory: Path) -> Iterator[Any]:
    made = in_process(make_settings(directory, **OPTIONS))
    yield made
    made.close()


def chat(backend: Any, *content: bytes | str, sampling: Sampling | None = None) -> Any:
    """A user's message of texts and sounds, prepared."""
    parts = [
        {"type": "text", "text": one}
        if isinstance(one, str)
        else {"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{base64.b64encode(one).decode()}"}}
        for one in content
    ]
    prompt = Conversation(messages=({"role": "user", "content": parts},))
    sampling = sampling or Sampling(temperature=0.0, max_tokens=8)
    files = [MediaFile(one, "file", "audio") for one in content if isinstance(one, bytes)]
    return backend.prepare(next(NUMBERS), Generation(request_id="test", prompt=prompt, sampling=sampling), files)


def run(backend: Any, *made: Any) -> list[str]:
    """The text of each, all run at once; of several pieces one after another."""
    events: dict[int, list[Any]] = {one.number: [] for one in made}
    for one in made:
        backend.add(one)
    while backend.busy:
        for number, event in backend.step():
            events[number].append(event)
    return ["".join(delta.text for delta in deltas(of_one)) for of_one in events.values()]


def test_the_engine_says_what_it_does(backend: Any) -> None:
    assert (backend.info.transcribes, backend.info.answers, backend.info.audio > 0) == (True, True, True)


# --- Conversations ---


def samples(data: bytes) -> Any:
    with wave.open(io.BytesIO(data)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


CONTENTS: dict[str, tuple[str | bytes, ...]] = {
    "audio alone": (tone(1),),
    "before a text": (tone(2), "What is said?"),
    "between texts": ("a", tone(1), "b"),
    "two sounds": (tone(1), "a", wav(noise(3, seed=2)), "b"),
    "text alone": ("Hi",),
}


@each_row("case", CONTENTS)
def test_prompts_are_those_of_transformers(case: str, backend: Any, directory: Path) -> None:
    from transformers import Qwen3ASRProcessor

    content = CONTENTS[case]
    processor: Any = Qwen3ASRProcessor.from_pretrained(directory)
    parts = [{"type": "text", "text": one} if isinstance(one, str) else {"type": "audio"} for one in content]
    text = processor.apply_chat_template(
        [{"role": "user", "content": parts}], tokenize=False, add_generation_prompt=True
    )
    # It takes a text for each sound, and is asked for their lengths alone; by itself it would cut them off as pieces.
    how = {"sampling_rate": asr_chat.RATE, "truncation": False, "return_tensors": "pt"}
    sounds = [samples(one) for one in content if isinstance(one, bytes)]
    for sound in sounds:
        made = processor(text=[asr_chat.AUDIO], audio=[sound], **how)
        tokens = [*made["input_ids"][0]].count(processor.audio_token_id)
        text = text.replace(asr_chat.AUDIO, "<|sound|>" * tokens, 1)
    expected = processor.tokenizer.encode(text.replace("<|sound|>", asr_chat.AUDIO), add_special_tokens=False)
    assert chat(backend, *content).prompt_ids == expected


def test_the_answer_is_that_to_the_sound(backend: Any) -> None:
    sounds = (tone(1), wav(noise(1)), tone(1))
    first, other, again = (run(backend, chat(backend, sound, "What?"))[0] for sound in sounds)
    assert first == again
    assert first != other


def test_a_conversation_of_audio_alone_is_a_transcription(backend: Any) -> None:
    """Of the same model, by the same prompt: it is written down as it is answered."""
    talk, written = chat(backend, tone(1)), prepared(backend, asked(tone(1)))
    assert talk.prompt_ids == written.prompt_ids
    assert run(backend, talk) == run(backend, written)


def test_both_at_once_do_not_mix(backend: Any) -> None:
    def made() -> list[Any]:
        sounds = [wav(noise(1 + number % 3, seed=number)) for number in range(4)]
        talks = [chat(backend, sound, "What?") for sound in sounds]
        return [*talks, *(prepared(backend, asked(sound)) for sound in sounds), chat(backend, "Hi")]

    alone = [run(backend, one)[0] for one in made()]
    assert run(backend, *made()) == alone
    assert len({*alone}) > 4


def test_it_is_sampled_as_asked(backend: Any) -> None:
    def of_seed(seed: int | None, temperature: float = 1.0) -> list[str]:
        sampling = Sampling(temperature=temperature, seed=seed, max_tokens=12)
        return texts(events_of(backend, asked(five_seconds(), sampling=sampling))[0])

    assert of_seed(3) == of_seed(3)
    assert of_seed(3) != of_seed(4)
    assert of_seed(3, 0.0) == of_seed(4, 0.0)


# --- What is text ---


@pytest.fixture(scope="module")
def said(directory: Path) -> Iterator[SaidEngine]:
    made = SaidEngine(directory)
    yield made
    made.close()


def written(engine: SaidEngine, answer: str, data: bytes, *, per_step: int = 1, **fields: Any) -> list[bytes]:
    """The records of a transcription, where the model writes `answer` of each piece."""
    body = {"file": base64.b64encode(data).decode(), **fields}
    path = "/v1/audio/transcriptions"
    files = [MediaFile(data, "file", "audio")]
    return engine.ask("transcription", body, engine.ids(answer), per_step=per_step, path=path, files=files)


ANSWERS: dict[str, tuple[str, str]] = {
    "a language": ("language English<asr_text>Hello there.", "Hello there."),
    "another": ("language Chinese<asr_text>你好", "你好"),
    "nothing said": ("language None<asr_text>", ""),
    "no language": ("Hello there.", "Hello there."),
    "what begins as a language": ("language is what we speak.", "language is what we speak."),
    "blanks around it": ("language English<asr_text> Hello there. ", "Hello there."),
}


@each_row("case", ANSWERS)
def test_what_is_no_text_is_taken_away(case: str, said: SaidEngine) -> None:
    answer, text = ANSWERS[case]
    for per_step in (1, 3, 50):
        (record,) = written(said, answer, one_second(), per_step=per_step)
        assert json.loads(record)["text"] == text
        *records, end = written(said, answer, one_second(), per_step=per_step, stream=True)
        *deltas, done = (json.loads(record.removeprefix(b"data: ")) for record in records)
        assert end == b"data: [DONE]\n\n"
        assert "".join(event["delta"] for event in deltas) == done["text"] == text


def test_of_each_piece(said: SaidEngine) -> None:
    answer = "language English<asr_text>Hello there."
    (record,) = written(said, answer, five_seconds())
    assert json.loads(record)["text"] == "Hello there. Hello there. Hello there."
    (record,) = written(said, "language Chinese<asr_text>你好", five_seconds(), language="zh")
    assert json.loads(record)["text"] == "你好你好你好"


def test_a_conversation_has_the_answer_as_it_is(said: SaidEngine) -> None:
    answer = "language English<asr_text>Hello there."
    (record,) = said.ask("openai", {"messages": [{"role": "user", "content": "Hi"}]}, said.ids(answer))
    assert json.loads(record)["choices"][0]["message"]["content"] == answer
