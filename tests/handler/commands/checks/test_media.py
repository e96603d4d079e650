"""What `lmi check` says of models that hear, see videos or write down what is said, as vLLM knows them here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lmi.handler.commands.checks.media import of_media

from ....kit.api.errors import OptionError
from ....kit.api.handler import check_model_dir as check
from ....kit.api.types import EngineInfo
from ....kit.media import asr_chat, audio_chat, speech, video_chat
from ....kit.media.voxtral import voxtral_directory
from ....kit.rows import each_row

WRITES = "the model writes audio down (/v1/audio/transcriptions, /v1/audio/translations)"
ALONE = f"{WRITES}, and does nothing else"
DUMMY = {"load_format": "dummy"}
NO_AUDIO, TWO = ({"limit_mm_per_prompt": f'{{"audio": {most}}}'} for most in (0, 2))
SMALL = {"max_num_batched_tokens": "512"}
WHOLE = {**SMALL, "disable_chunked_mm_input": "true"}
"""Of a file that has more tokens than a step, nothing can be computed."""

SAID: dict[str, tuple[str, Mapping[str, str], tuple[str, ...]]] = {
    "Whisper": ("speech", {}, (ALONE,)),
    "one that talks about audio": ("audio", {}, ("a prompt may have audio",)),
    "as few as the options say": ("audio", TWO, ("a prompt may have audio (up to 2)",)),
    "in steps shorter than its audio": ("audio", SMALL, ("a prompt may have audio",)),
    "none, by the options": ("audio", NO_AUDIO, ()),
    "one that sees videos": ("video", {}, ("a prompt may have images, videos",)),
    "one that does both": ("both", {}, (WRITES, "a prompt may have audio")),
    "one that does neither, by the options": ("both", NO_AUDIO, ()),
    "Voxtral": ("voxtral", DUMMY, (WRITES, "a prompt may have audio (up to 5)")),
    "one that reads text": ("text", {}, ()),
}
REFUSED: dict[str, tuple[str, Mapping[str, str], str]] = {
    "Whisper's context": ("speech", {"max_model_len": "1000"}, "max_model_len"),
    "Whisper in steps that are too short": ("speech", {"max_num_batched_tokens": "64"}, "max_num_batched_tokens"),
    "Whisper without audio": ("speech", NO_AUDIO, "limit_mm_per_prompt"),
    "audio that is to be whole in a step": ("audio", WHOLE, "max_num_batched_tokens"),
    "videos that are": ("video", WHOLE, "max_num_batched_tokens"),
}


ALL = {"images": 3, "audio": 999, "video": 1, "image_embeds": 3}
EMBEDS = "embeddings of images (up to 3)"
LACKING = "warning: audio will be refused: what decodes it is not installed here:"
INFOS: dict[str, tuple[dict[str, int | bool], str, tuple[str, ...]]] = {
    "text": ({}, "", ()),
    "all kinds": (ALL, "", (f"a prompt may have images (up to 3), audio, videos (up to 1), {EMBEDS}",)),
    "it writes audio down": ({"audio": 1, "transcribes": True, "answers": False}, "", (ALONE,)),
    "it could hear": ({}, "soundfile, av", (f"{LACKING} soundfile, av; pip install soundfile av",)),
}
"""What is known of an engine, packages that are missing, what is said."""


@each_row("case", INFOS)
def test_what_is_said_of_an_engine(case: str) -> None:
    fields, missing, said = INFOS[case]
    info = EngineInfo(engine="vllm", version="1", context=8, **fields)  # type: ignore[arg-type]
    assert tuple(map(str, of_media(info, missing))) == said


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, demo_model: Path) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    made: dict[str, Callable[[Path, Path], Path]] = {
        "speech": speech.build,
        "audio": audio_chat.build,
        "video": video_chat.build,
        "both": asr_chat.build,
        "voxtral": lambda directory, _: voxtral_directory(directory),
    }
    return {"text": demo_model, **{name: build(folder / name, demo_model) for name, build in made.items()}}


def behind(lines: list[str]) -> tuple[str, ...]:
    """What is said behind the arguments."""
    last = next(place for place, line in enumerate(lines) if line.startswith("vLLM "))
    return tuple(lines[last + 1 :])


@pytest.mark.engine
@pytest.mark.contract
@each_row("case", SAID)
def test_what_a_model_takes(case: str, models: dict[str, Path]) -> None:
    model, options, said = SAID[case]
    assert behind(check(models[model], options)) == said


@pytest.mark.engine
@pytest.mark.contract
@each_row("case", REFUSED)
def test_what_a_start_would_end_with(case: str, models: dict[str, Path]) -> None:
    model, options, option = REFUSED[case]
    with pytest.raises(OptionError) as caught:
        check(models[model], options)
    assert f"option.{option}" in caught.value.message


@pytest.mark.engine
@pytest.mark.contract
@pytest.mark.parametrize("missing", [("av",), ("soundfile",), ("soundfile", "av")], ids=", ".join)
def test_packages_that_are_missing(
    missing: tuple[str, ...], models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    names = ", ".join(missing)
    for model in ("audio", "both"):
        assert behind(check(models[model], {})) == (f"{LACKING} {names}; pip install {' '.join(missing)}",)
    with pytest.raises(OptionError, match=f"reads audio alone, and what decodes it is not installed: {names}"):
        check(models["speech"], {})
    assert behind(check(models["video"], {})) == ("a prompt may have images, videos",)
