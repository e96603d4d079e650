"""Models that write audio down, Whisper apart: prompts are those of vLLM's own server, and what is called of their
classes they have. Without engines: random weights would say no more.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ....kit.api.errors import ParameterError, RequestError, UnsupportedError
from ....kit.api.options import make_settings
from ....kit.api.types import Sampling
from ....kit.engines.start import Front, front
from ....kit.engines.transcribed import asked, five_seconds, one_second, prepared, vllms
from ....kit.media import asr_chat
from ....kit.media.asr_files import FILES
from ....kit.media.sounds import encoded, noise
from ....kit.media.voxtral import voxtral_directory
from ....kit.rows import each_row

pytestmark = pytest.mark.engine

OPTIONS = {"max_model_len": "2048", "dtype": "fp32", "load_format": "dummy"}
BUILT: dict[str, Callable[[Path, Path], object]] = {
    "Qwen3-ASR": asr_chat.build,
    "Voxtral": lambda folder, _: voxtral_directory(folder),
    **FILES,
}


@pytest.fixture(scope="module", params=BUILT)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, demo_model: Path) -> Front:
    folder = tmp_path_factory.mktemp("models") / "model"
    BUILT[request.param](folder, demo_model)
    return front(make_settings(folder, **OPTIONS))


# --- Prompts ---


def flac() -> bytes:
    return encoded(noise(3, 44100), 44100, "flac")


SAMPLED = Sampling(temperature=0.5, top_p=0.8, top_k=20, min_p=0.1, repetition_penalty=1.2, seed=7, max_tokens=9)
CASES: dict[str, tuple[Callable[[], bytes], dict[str, Any]]] = {
    "no language": (one_second, {}),
    "a language": (one_second, {"language": "en"}),
    "another language": (one_second, {"language": "de"}),
    "a text that helps": (one_second, {"prompt": "two words", "language": "en"}),
    "a text with tokens of the model's own": (one_second, {"prompt": "a<|im_end|>b"}),
    "words to listen for": (one_second, {"hotwords": "Voxtral, Qwen"}),
    "translated": (one_second, {"translate": True, "to_language": "fr"}),
    "translated from a language": (one_second, {"translate": True, "language": "de", "to_language": "fr"}),
    "in three pieces": (five_seconds, {"language": "en"}),
    "flac of 44,100 Hz": (flac, {}),
    "sampled": (one_second, {"sampling": SAMPLED}),
}


def same(made: Front, ours: list[Any], generation: Any) -> None:
    """Asserts that requests are those of vLLM's server: their tokens, what the model hears and where, how they are
    sampled."""
    from torch import equal

    # What it has rendered once, it leaves out.
    made.core.renderer.clear_mm_cache()
    theirs = vllms(made.core, generation)
    assert [one.prompt_token_ids for one in ours] == [one.prompt_token_ids for one in theirs]
    for one, other in zip(ours, theirs, strict=True):
        ((heard,), (expected,)) = one.mm_features, other.mm_features
        assert heard.mm_position == expected.mm_position
        data, expected_data = heard.data.get_data(), expected.data.get_data()
        assert data.keys() == expected_data.keys()
        assert all(equal(value, expected_data[name]) for name, value in data.items())
        params, expected_params = one.sampling_params, other.sampling_params
        for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "max_tokens"):
            assert getattr(params, name) == getattr(expected_params, name), name


@each_row("case", CASES)
def test_prompts_are_those_of_vllms_server(case: str, made: Front) -> None:
    data, fields = CASES[case]
    generation = asked(data(), **fields)
    same(made, prepared(made.requests, generation).requests, generation)


def test_a_translation_is_into_english(made: Front) -> None:
    """As in OpenAI's API; vLLM's server says nothing of it to some models."""
    same(made, prepared(made.requests, asked(translate=True)).requests, asked(translate=True, to_language="en"))


def test_the_audios_tokens_are_counted_once(made: Front) -> None:
    """They are in these models' prompts; vLLM's server counts them a second time for some."""
    ours = prepared(made.requests, asked(five_seconds()))
    assert ours.recording.audio_tokens is None
    assert len(ours.prompt_ids) == sum(len(one.prompt_token_ids) for one in vllms(made.core, asked(five_seconds())))


REFUSED: dict[str, tuple[dict[str, Any], type[RequestError], str]] = {
    "a language that there is not": ({"language": "xx"}, ParameterError, "transcription.language"),
    "into one that there is not": (
        {"translate": True, "to_language": "xx"},
        ParameterError,
        "transcription.to_language",
    ),
    "points in time": ({"timestamps": True}, UnsupportedError, "transcription.timestamps"),
    "two answers": ({"sampling": Sampling(n=2)}, UnsupportedError, "transcription.audio"),
}


@each_row("case", REFUSED)
def test_what_is_refused_names_its_field(case: str, made: Front) -> None:
    fields, kind, field = REFUSED[case]
    with pytest.raises(kind) as caught:
        prepared(made.requests, asked(**fields))
    assert caught.value.param == field


# --- Classes ---

CALLED = {
    "get_speech_to_text_config": ("model_config", "task_type"),
    "get_generation_prompt": ("stt_params",),
    "get_num_audio_tokens": ("audio_duration_s", "stt_config", "model_config"),
    "validate_language": ("language",),
    "get_streaming_post_processor_cls": (),
    "post_process_output": ("text",),
}
"""What is called of a class, and what it is given there, in this order."""
OF_LANGUAGES = {
    "get_language_detection_prompt": ("audio", "stt_config"),
    "get_language_token_ids": ("tokenizer",),
    "parse_language_detection_output": ("token_ids", "tokenizer"),
}
"""The same of those that are asked for the language first."""
ODD = {"FireRedLIDForConditionalGeneration": "of 0.26: its get_generation_prompt is older than vLLM's server, too"}
"""Classes that vLLM's own server cannot call."""
FIRST = {
    "CohereAsrForConditionalGeneration": "en",
    "FireRedASR2ForConditionalGeneration": "en",
    "FunASRForConditionalGeneration": "en",
}
"""Those that go by a language where nobody names one."""
ALONE = {
    *FIRST,
    "FireRedLIDForConditionalGeneration",
    "MossTranscribeDiarizeForConditionalGeneration",
    "WhisperForConditionalGeneration",
}
"""Those that do nothing else."""


@pytest.fixture(scope="module")
def classes() -> dict[str, Any]:
    """All of vLLM's registry that write audio down, by architecture. Importing each of its modules takes minutes: here
    are those that speak of it, and those that import from these."""
    import vllm.model_executor.models as models
    from vllm.model_executor.models.registry import ModelRegistry

    sources = {path.stem: path.read_text("utf-8") for path in Path(models.__file__).parent.glob("*.py")}
    speaking = {name for name, text in sources.items() if "SupportsTranscription" in text} - {"__init__", "interfaces"}
    words = "|".join(speaking)
    importing = re.compile(rf"^from (?:vllm\.model_executor\.models)?\.(?:{words}) import", re.MULTILINE)
    looked_at = speaking | {name for name, text in sources.items() if importing.search(text)}
    found: dict[str, Any] = {}
    registered: dict[str, Any] = {**ModelRegistry.models}
    for architecture, entry in registered.items():
        module: str = entry.module_name
        if module.rpartition(".")[2] in looked_at:
            kind = getattr(importlib.import_module(module), entry.class_name)
            if getattr(kind, "supports_transcription", False):
                found[architecture] = kind
    return found


def parameters(method: Any) -> tuple[str, ...]:
    """What a call must or may give in its order."""
    return tuple(inspect.signature(method).parameters)


def test_classes_have_what_is_called_of_them(classes: dict[str, Any]) -> None:
    assert {"WhisperForConditionalGeneration", "Qwen3ASRForConditionalGeneration", *FIRST} <= classes.keys()
    other: dict[str, Any] = {}
    for architecture, kind in classes.items():
        called = {**CALLED, **(OF_LANGUAGES if kind.supports_explicit_language_detection else {})}
        wrong = {name: parameters(getattr(kind, name)) for name in called}
        other[architecture] = {name: given for name, given in wrong.items() if given != called[name]}
        assert kind.supported_languages
        assert isinstance(kind.no_space_languages, set | frozenset)
    assert {name for name, wrong in other.items() if wrong} == ODD.keys() & classes.keys(), other


def test_which_go_by_a_language_and_do_nothing_else(classes: dict[str, Any]) -> None:
    """By these tables new classes are noticed."""
    first = {name: told for name, kind in classes.items() if (told := kind.validate_language(None)) is not None}
    assert first == {name: FIRST[name] for name in FIRST.keys() & classes.keys()}
    assert {name for name, kind in classes.items() if kind.supports_transcription_only} == ALONE & classes.keys()


WRITTEN = ("Hello there.", " Hello there. ", "", "  ", "language English<asr_text>Hello there.", "language")


def streamed(kind: Any, text: str) -> Iterator[str]:
    processor = kind.get_streaming_post_processor_cls()()
    for place, character in enumerate(text, 1):
        yield processor.process_delta(character, place == len(text))


def test_what_is_streamed_is_the_text_of_whole_answers(classes: dict[str, Any]) -> None:
    """But for white space around it: whole answers are put together from the same parts."""
    for architecture, kind in classes.items():
        for text in WRITTEN:
            assert "".join(streamed(kind, text)).strip() == kind.post_process_output(text).strip(), (architecture, text)
