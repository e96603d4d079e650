"""Audio that is written down: the prompts of vLLM's own server, the texts of transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from ....kit.api.errors import ParameterError, RequestError, UnsupportedError
from ....kit.api.options import make_settings
from ....kit.api.types import Sampling, StructuredOutput, Transcription
from ....kit.engines.backends import deltas
from ....kit.engines.start import Front, front, in_process
from ....kit.engines.transcribed import (
    asked,
    events_of,
    five_seconds,
    one_second,
    prepared,
    recording,
    texts,
    vllms,
)
from ....kit.hosts.host import model_directory
from ....kit.media import speech
from ....kit.media.sounds import encoded, noise, tone, wav
from ....kit.rows import each_row

pytestmark = pytest.mark.engine

OPTIONS = {"max_model_len": "448", "dtype": "fp32", "enforce_eager": "true", "kv_cache_memory_bytes": "33554432"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, demo_model: Path) -> Path:
    folder = tmp_path_factory.mktemp("speech")
    return model_directory(speech.build(folder / "built", demo_model), folder / "model", {})


@pytest.fixture(scope="module")
def backend(directory: Path) -> Iterator[Any]:
    made = in_process(make_settings(directory, **OPTIONS))
    yield made
    made.close()


def two_channels() -> bytes:
    return encoded(np.stack([noise(3, 44100), noise(3, 44100, 5)], axis=1), 44100, "flac")


# --- Prompts ---

PROMPTS: dict[str, tuple[Callable[[], bytes], dict[str, Any]]] = {
    "a second": (one_second, {"language": "en"}),
    "another language": (one_second, {"language": "de"}),
    "translated": (one_second, {"language": "zh", "translate": True}),
    "with points in time": (one_second, {"language": "en", "timestamps": True}),
    "in three pieces": (five_seconds, {"language": "en"}),
    "flac of 44,100 Hz, two channels": (two_channels, {"language": "fr"}),
    "nothing but silence": (lambda: wav(np.zeros(32000, np.float32)), {"language": "en"}),
}


@pytest.fixture(scope="module")
def made(directory: Path) -> Front:
    return front(make_settings(directory, **OPTIONS))


@each_row("case", PROMPTS)
def test_prompts_are_those_of_vllms_server(case: str, made: Front) -> None:
    from torch import equal

    data, fields = PROMPTS[case]
    generation = asked(data(), **fields)
    ours, theirs = prepared(made.requests, generation).requests, vllms(made.core, generation)
    assert [one.prompt_token_ids for one in ours] == [one.prompt_token_ids for one in theirs]
    for one, other in zip(ours, theirs, strict=True):
        ((heard,), (expected,)) = one.mm_features, other.mm_features
        assert heard.mm_position == expected.mm_position
        assert equal(heard.data.get_data()["input_features"], expected.data.get_data()["input_features"])


@each_row("prompt", ["hello", " two  words ", "word " * 400], ids=["a word", "blanks", "too long"])
def test_a_text_that_helps_stands_where_transformers_has_it(prompt: str, made: Front) -> None:
    """vLLM's server writes a token that Whisper does not know; of what is too long OpenAI and transformers take the
    end."""
    from transformers import WhisperProcessor

    (ours,) = prepared(made.requests, asked(language="en", prompt=prompt)).requests
    directory = made.core.model_config.model
    before = [*WhisperProcessor.from_pretrained(directory).get_prompt_ids(prompt)]
    rest = prepared(made.requests, asked(language="en")).requests[0].prompt_token_ids
    assert ours.prompt_token_ids == [before[0], *before[1:][-(speech.LONGEST // 2 - 1) :], *rest]


# --- Texts ---


def transformers_ids(directory: Path, samples: Any, prompt_ids: list[int], most: int) -> list[int]:
    """What transformers' own model goes on with, greedily."""
    import torch
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

    model: Any = WhisperForConditionalGeneration.from_pretrained(directory, dtype=torch.float32)
    features: Any = WhisperFeatureExtractor.from_pretrained(directory)(
        samples, sampling_rate=speech.RATE, return_tensors="pt"
    )
    ids = [*prompt_ids]
    with torch.no_grad():
        encoded_audio = model.model.encoder(features.input_features)
        for _ in range(most):
            logits = model(encoder_outputs=encoded_audio, decoder_input_ids=torch.tensor([ids])).logits
            ids.append(int(logits[0, -1].argmax()))
    return ids[len(prompt_ids) :]


def test_the_answer_is_that_of_transformers(backend: Any, directory: Path) -> None:
    generation = asked(language="en")
    (events,) = events_of(backend, generation)
    ours = [token.id for delta in deltas(events) for token in delta.tokens]
    prompt_ids = prepared(backend, generation).requests[0].prompt_token_ids
    samples = (noise(1) * 32767).round().astype("<i2").astype(np.float32) / 32768
    assert ours == transformers_ids(directory, samples, prompt_ids, 8)


def test_each_piece_is_a_sequence(backend: Any) -> None:
    (events,) = events_of(backend, asked(five_seconds(), language="en"))
    found = recording(events)
    assert len(found.starts) == 3
    assert found.starts[0] == 0
    # Where it is quiet in the last second of two, and not after two.
    assert all(1 <= after - before <= 2 for before, after in pairwise(found.starts))
    assert found.seconds == pytest.approx(5)
    ends = [delta for delta in deltas(events) if delta.finish is not None]
    assert sorted(delta.index for delta in ends) == [0, 1, 2]
    assert [delta.finish.last for delta in ends if delta.finish] == [False, False, True]
    assert {delta.finish.generated_tokens for delta in ends if delta.finish} == {8}


def test_a_stream_has_the_same_texts(backend: Any) -> None:
    whole = asked(five_seconds(), language="en")
    one, other = events_of(backend, whole, replace(whole, stream=True))
    assert texts(one) == texts(other)
    assert any(texts(one))


def test_the_model_says_what_language_it_is(backend: Any) -> None:
    """And then writes it down in it."""
    (events,) = events_of(backend, asked())
    language = recording(events).language
    (told,) = events_of(backend, asked(language=language))
    assert texts(events) == texts(told)


def test_many_at_once_do_not_mix(backend: Any) -> None:
    sounds = [wav(noise(1 + number % 3, seed=number)) for number in range(8)]
    alone = [texts(events_of(backend, asked(data))[0]) for data in sounds]
    assert [texts(events) for events in events_of(backend, *map(asked, sounds))] == alone
    assert len({*map(str, alone)}) > 1


def test_one_that_is_ended_ends(backend: Any) -> None:
    """While the model is asked for the language, and while its pieces are written down."""
    long = asked(five_seconds(), sampling=Sampling(temperature=0.0, max_tokens=400, ignore_eos=True))
    for language in (None, "en"):
        one = prepared(backend, replace(long, transcription=Transcription(audio=five_seconds(), language=language)))
        backend.add(one)
        backend.abort([one.number])
        assert not backend.busy
        assert backend.core_ends()
    assert any(texts(events_of(backend, asked(language="en"))[0]))


# --- What is refused ---

REFUSED: dict[str, tuple[Callable[[], bytes], dict[str, Any], type[RequestError], str]] = {
    "a language that there is not": (one_second, {"language": "xx"}, ParameterError, "transcription.language"),
    "no audio": (lambda: b"hello" * 100, {"language": "en"}, ParameterError, "file"),
    "cut off": (lambda: two_channels()[:2000], {"language": "en"}, ParameterError, "file"),
    "nothing": (lambda: tone(0), {"language": "en"}, ParameterError, "file"),
    "too long": (lambda: tone(601, rate=8000), {"language": "en"}, ParameterError, "file"),
    "a prompt that begins the answer": (
        one_second,
        {"language": "en", "prompt": "a<|startoftranscript|>"},
        ParameterError,
        "prompt",
    ),
    "two answers": (one_second, {"language": "en", "sampling": Sampling(n=2)}, UnsupportedError, "transcription.audio"),
    "a guide": (
        one_second,
        {"language": "en", "sampling": Sampling(structured_output=StructuredOutput(json_object=True))},
        UnsupportedError,
        "transcription.audio",
    ),
}


@each_row("case", REFUSED)
def test_what_is_refused_names_its_field(case: str, backend: Any) -> None:
    data, fields, kind, field = REFUSED[case]
    with pytest.raises(kind) as caught:
        prepared(backend, asked(data(), **fields))
    assert caught.value.param == field


def test_a_language_that_the_model_could_not_tell_is_asked_for(backend: Any) -> None:
    """As where a tokenizer lacks one, and has the end of the text in its place."""
    asking = prepared(backend, asked())
    tokenizer = backend.core.get_tokenizer()
    with pytest.raises(ParameterError) as caught:
        backend._requests.told(asking, [tokenizer.eos_token_id])
    assert caught.value.param == "transcription.language"


def test_the_engine_says_what_it_does(backend: Any) -> None:
    assert (backend.info.transcribes, backend.info.answers, backend.info.audio) == (True, False, 1)
