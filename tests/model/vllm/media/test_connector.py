"""Audio and videos in conversations, as vLLM's own server renders them from the same requests."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lmi.model.vllm.media.connector import use_connector

from ....kit.api.engine import ChatRenderer, media_decoder
from ....kit.api.errors import ParameterError
from ....kit.api.options import MediaRules, make_settings
from ....kit.api.types import Conversation, Generation, MediaFile, Sampling
from ....kit.engines.start import front, in_process
from ....kit.hosts.host import model_directory
from ....kit.media import audio_chat, omni, video_chat
from ....kit.media.films import clip, jpeg_frames
from ....kit.media.sounds import encoded, noise, sine, tone

pytestmark = pytest.mark.engine

OPTIONS = {"max_model_len": "2048", "dtype": "fp32", "enforce_eager": "true", "kv_cache_memory_bytes": "33554432"}
TYPES = {"audio": "audio/wav", "video": "video/mp4"}
MADE = {"audio": audio_chat, "video": video_chat}


@pytest.fixture(scope="module", params=["audio", "video"])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, demo_model: Path
) -> Iterator[tuple[str, Any, Any]]:
    """A kind, a backend on a model that takes it, and that model's settings."""
    kind: str = request.param
    folder = tmp_path_factory.mktemp(kind)
    built = MADE[kind].build(folder / "built", demo_model)
    given = make_settings(model_directory(built, folder / "model", {}), **OPTIONS, enable_mm_embeds="true")
    backend = in_process(given)
    yield kind, backend, given
    backend.close()


def conversation(kind: str, *content: str | bytes) -> Conversation:
    """Of texts, and of files."""
    name = f"{kind}_url"
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": one}
        if isinstance(one, str)
        else {"type": name, name: {"url": f"data:{TYPES[kind]};base64,{base64.b64encode(one).decode()}"}}
        for one in content
    ]
    return Conversation(messages=({"role": "user", "content": parts},))


def files(kind: Any, *content: str | bytes) -> list[MediaFile]:
    given = [one for one in content if isinstance(one, bytes)]
    return [MediaFile(data, f"file {number}", kind) for number, data in enumerate(given)]


def vllms(core: Any, given: Conversation, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What vLLM's server makes of it, its files read from their URLs."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.multimodal.media.connector import MEDIA_CONNECTOR_REGISTRY, MediaConnector

    monkeypatch.setitem(MEDIA_CONNECTOR_REGISTRY.name2class, "http", MediaConnector)
    messages: Any = [*given.messages]
    processing = given.processor_arguments or None
    asked = ChatCompletionRequest(
        model="m",
        messages=messages,
        seed=None,
        mm_processor_kwargs=processing,
        media_io_kwargs=given.reader_arguments or None,
    )
    params = asked.build_chat_params(None, "auto")
    params = params.with_defaults({"tokenize": False}, default_mm_processor_kwargs=processing)
    extras = {"mm_processor_kwargs": processing} if processing else None
    tokenize = asked.build_tok_params(core.model_config)
    _, (prompt,) = core.renderer.render_chat([asked.messages], params, tokenize, prompt_extras=extras)
    return prompt


@cache
def two(kind: str) -> tuple[bytes, bytes]:
    """Two files."""
    if kind == "audio":
        return tone(1), encoded(noise(2, 44100), 44100, "flac")
    return clip(6), clip(20, seed=4)


def test_prompts_are_those_of_vllms_server(model: tuple[str, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Their tokens, and what the processor has made of each file, by its hash."""
    kind, backend, given = model
    use_connector()
    chat = ChatRenderer(backend.core, given)
    first, other = two(kind)
    for content in (("What?", first), (first, "a", other, "b"), ("a", other, "b")):
        asked = conversation(kind, *content)
        with monkeypatch.context() as patched:
            theirs = vllms(backend.core, asked, patched)
        ours = chat.render(chat.request(asked), files(kind, *content), whole=True)
        assert [*ours["prompt_token_ids"]] == [*theirs["prompt_token_ids"]]
        assert ours["mm_hashes"] == theirs["mm_hashes"]
        assert str(ours["mm_placeholders"]) == str(theirs["mm_placeholders"])


ARGUMENTS: dict[str, tuple[dict[str, Any], ...]] = {
    "audio": ({"processor_arguments": {"truncation": False}},),
    "video": (
        {"reader_arguments": {"video": {"num_frames": 3}}},
        {"processor_arguments": {"do_normalize": False}},
    ),
}
"""A request's own, by kind."""


def test_prompts_by_a_requests_own_arguments(model: tuple[str, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of what is made of a file is another request's."""
    kind, backend, given = model
    use_connector()
    chat = ChatRenderer(backend.core, given)
    content = ("What?", two(kind)[1])
    plain = chat.render(chat.request(conversation(kind, *content)), files(kind, *content), whole=True)
    for arguments in ARGUMENTS[kind]:
        asked = replace(conversation(kind, *content), **arguments)
        with monkeypatch.context() as patched:
            theirs = vllms(backend.core, asked, patched)
        ours = chat.render(chat.request(asked), files(kind, *content), whole=True)
        assert [*ours["prompt_token_ids"]] == [*theirs["prompt_token_ids"]]
        assert ours["mm_hashes"] == theirs["mm_hashes"] != plain["mm_hashes"]


def test_a_video_that_comes_as_its_frames(model: tuple[str, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As clients of vLLM's server send it, who have picked them."""
    kind, backend, given = model
    if kind == "audio":
        return
    use_connector()
    chat = ChatRenderer(backend.core, given)
    url = jpeg_frames(5)
    given_arguments: tuple[dict[str, Any], ...] = ({}, {"reader_arguments": {"video": {"num_frames": 2}}})
    for arguments in given_arguments:
        part = {"type": "video_url", "video_url": {"url": url}}
        asked = Conversation(messages=({"role": "user", "content": [part]},), **arguments)
        with monkeypatch.context() as patched:
            theirs = vllms(backend.core, asked, patched)
        file = MediaFile(url.partition(",")[2].encode(), "file 0", "video", frames=True)
        ours = chat.render(chat.request(asked), [file], whole=True)
        assert [*ours["prompt_token_ids"]] == [*theirs["prompt_token_ids"]]
        assert ours["mm_hashes"] == theirs["mm_hashes"]


def test_a_video_that_is_heard(tmp_path: Path, demo_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the argument of Qwen-Omni's processors. vLLM 0.26's own server fails with it, beside its transformers."""
    built = omni.build(tmp_path / "built", demo_model)
    given = make_settings(model_directory(built, tmp_path / "model", {}), **OPTIONS, load_format="dummy")
    core = front(given).core
    use_connector()
    chat = ChatRenderer(core, given)
    data = omni.talkie()
    for arguments in ({}, {"use_audio_in_video": True}):
        asked = replace(conversation("video", data, "What?"), processor_arguments=arguments)
        try:
            with monkeypatch.context() as patched:
                theirs = vllms(core, asked, patched)
        except ValueError:
            assert arguments
            with pytest.raises(ParameterError) as caught:
                chat.render(chat.request(asked), files("video", data), whole=True)
            assert caught.value.param == "prompt.processor_arguments"
            continue
        ours = chat.render(chat.request(asked), files("video", data), whole=True)
        assert [*ours["prompt_token_ids"]] == [*theirs["prompt_token_ids"]]
        assert ours["mm_hashes"] == theirs["mm_hashes"]
        assert str(ours["mm_placeholders"]) == str(theirs["mm_placeholders"])
        assert ("audio" in ours["mm_hashes"]) == bool(arguments)
    # One without sound is refused by its name, and so is its sound.
    silent = clip(8)
    asked = replace(conversation("video", silent, "What?"), processor_arguments={"use_audio_in_video": True})
    with pytest.raises(ParameterError) as caught:
        chat.render(chat.request(asked), files("video", silent), whole=True)
    assert caught.value.param == "file 0"


def tensor(*size: int, seed: int = 0) -> bytes:
    """A file of numbers, as clients of vLLM's server make it."""
    import torch

    file = io.BytesIO()
    torch.save(torch.randn(*size, generator=torch.Generator().manual_seed(seed)), file)
    return base64.b64encode(file.getvalue())


def embedded(*content: str | bytes | dict[str, str]) -> Conversation:
    """Of texts, and of embeddings of images."""
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": one}
        if isinstance(one, str)
        else {"type": "image_embeds", "image_embeds": one.decode() if isinstance(one, bytes) else one}
        for one in content
    ]
    return Conversation(messages=({"role": "user", "content": parts},))


def embeds(*content: str | bytes | dict[str, str]) -> list[MediaFile]:
    given = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in content if not isinstance(one, str)]
    return [MediaFile(data, f"file {number}", "image_embeds") for number, data in enumerate(given)]


def test_embeddings_of_images(model: tuple[str, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt, with those of two images, is that of vLLM's server; who sends others gets another answer."""
    kind, backend, given = model
    if kind == "audio":
        assert not backend.info.image_embeds
        return
    assert backend.info.image_embeds == backend.info.images
    use_connector()
    chat = ChatRenderer(backend.core, given)
    size = (video_chat.TOKENS, video_chat.HIDDEN)
    first, other = tensor(*size), tensor(*size, seed=1)
    for content in (("What?", first), (first, "a", other, "b")):
        asked = embedded(*content)
        with monkeypatch.context() as patched:
            theirs = vllms(backend.core, asked, patched)
        ours = chat.render(chat.request(asked), embeds(*content), whole=True)
        assert [*ours["prompt_token_ids"]] == [*theirs["prompt_token_ids"]]
        assert ours["mm_hashes"] == theirs["mm_hashes"]
    answers = [answered(backend, embedded("What?", one), embeds(one)) for one in (first, other, first)]
    assert answers[0] == answers[2] != answers[1]


def test_embeddings_of_several_tensors(model: tuple[str, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Some models (Qwen2-VL) want more than one: their processors get what vLLM's server hands them."""
    kind, backend, given = model
    if kind == "audio":
        return
    use_connector()
    tensors = {"image_embeds": tensor(4, 3).decode(), "image_grid_thw": tensor(3, seed=1).decode()}
    handed: list[Any] = []

    def keep(_: Any, prompt: Any, *others: Any, **more: Any) -> Any:
        handed.append(prompt["multi_modal_data"])
        raise NotImplementedError

    chat = ChatRenderer(backend.core, given)
    asked = embedded("a", tensors)
    monkeypatch.setattr(type(backend.core.renderer), "process_for_engine", keep)
    with pytest.raises(NotImplementedError), monkeypatch.context() as patched:
        vllms(backend.core, asked, patched)
    with pytest.raises(ParameterError):
        chat.render(chat.request(asked), embeds(tensors))
    theirs, ours = (one["image"] for one in handed)
    assert theirs.keys() == ours.keys() == tensors.keys()
    assert all((theirs[name] == ours[name]).all() for name in tensors)


def test_embeddings_that_no_model_takes(model: tuple[str, Any, Any]) -> None:
    kind, backend, given = model
    if kind == "audio":
        return
    chat = ChatRenderer(backend.core, given)
    for bad in (
        b"AAAA",
        b"not base64",
        tensor(video_chat.TOKENS, 5),
        tensor(3),
        {"image_embeds": "AAAA"},
        {"pixels": tensor(video_chat.TOKENS, video_chat.HIDDEN).decode()},
    ):
        with pytest.raises(ParameterError) as caught:
            chat.render(chat.request(embedded("a", bad)), embeds(bad))
        assert caught.value.param == "file 0"
    assert said(model, "What?", two(kind)[0])


def test_embeddings_that_are_more_than_a_prompt_has(model: tuple[str, Any, Any]) -> None:
    """One that is small as a file, which no memory is taken for, and several together."""
    import torch

    kind, backend, given = model
    if kind == "audio":
        return
    chat = ChatRenderer(backend.core, given)
    most = 2048 * video_chat.HIDDEN * 32
    file = io.BytesIO()
    torch.save(torch.zeros(1, video_chat.HIDDEN).expand(1 << 20, -1), file)
    bomb, half = base64.b64encode(file.getvalue()), tensor(most // video_chat.HIDDEN // 4 // 2 + 1, video_chat.HIDDEN)
    assert len(bomb) < 1 << 12
    for content, field in (((bomb,), "file 0"), ((half, half), "file 1")):
        with pytest.raises(ParameterError, match=rf"of at most {most} bytes|at most {most} bytes of tensors") as caught:
            chat.render(chat.request(embedded("a", *content)), embeds(*content))
        assert caught.value.param == field


def test_what_the_machine_lacks_is_no_fault_of_a_request() -> None:
    """Whatever it asks the processor for."""
    for error in (MemoryError(), import_module("torch").OutOfMemoryError()):
        with pytest.raises(type(error)), media_decoder.processor_faults([], {"max_pixels": 1}):
            raise error


def test_arguments_that_are_refused_are_named(model: tuple[str, Any, Any]) -> None:
    kind, backend, given = model
    chat = ChatRenderer(backend.core, given)
    content = ("What?", two(kind)[0])
    bad: dict[str, tuple[str, dict[str, Any]]] = {
        "audio": ("prompt.processor_arguments", {"processor_arguments": {"padding": "no such padding"}}),
        "video": ("file 0", {"reader_arguments": {"video": {"num_frames": "many"}}}),
    }
    field, arguments = bad[kind]
    with pytest.raises(ParameterError) as caught:
        chat.render(chat.request(replace(conversation(kind, *content), **arguments)), files(kind, *content))
    assert caught.value.param == field
    assert said(model, *content)


def said(model: tuple[str, Any, Any], *content: str | bytes) -> str:
    kind, backend, _ = model
    return answered(backend, conversation(kind, *content), files(kind, *content))


def answered(backend: Any, prompt: Conversation, given: list[MediaFile]) -> str:
    sampling = Sampling(temperature=0.0, max_tokens=8)
    asked = Generation(request_id="test", prompt=prompt, sampling=sampling, overflow="refuse")
    prepared = backend.prepare(1, asked, given)
    backend.add(prepared)
    text = ""
    while backend.busy:
        for _, event in backend.step():
            text += getattr(event, "text", "")
    return text


def test_another_file_has_another_answer(model: tuple[str, Any, Any]) -> None:
    first, other = two(model[0])
    assert said(model, "What?", first) == said(model, "What?", first)
    assert said(model, "What?", first) != said(model, "What?", other)


def test_how_many_of_each_kind_a_prompt_may_have(model: tuple[str, Any, Any]) -> None:
    kind, backend, _ = model
    info = backend.info
    assert info.limit(kind) >= 1
    assert (info.audio > 0, info.video > 0) == (kind == "audio", kind == "video")


FORMS: list[tuple[dict[str, Any], dict[str, int]]] = [
    ({"image": 2, "video": {"count": 3, "num_frames": 4, "width": 56, "height": 56}}, {"image": 2, "video": 3}),
    ({"image": {"count": 0}, "video": 0}, {"image": 0, "video": 0}),
    ({"video": {"num_frames": 4}}, {"image": 999, "video": 999}),
]


def test_limits_in_all_their_forms(tmp_path: Path, demo_model: Path) -> None:
    """option.limit_mm_per_prompt as vLLM has it: a number, or an object with one; what is not said has vLLM's own."""
    built = video_chat.build(tmp_path / "built", demo_model)
    for number, (limits, expected) in enumerate(FORMS):
        model = model_directory(built, tmp_path / f"model {number}", {})
        core = front(make_settings(model, **OPTIONS, limit_mm_per_prompt=json.dumps(limits))).core
        made: dict[Any, int] = media_decoder.MediaDecoder(core, MediaRules()).limits
        assert {kind: made[kind] for kind in expected} == expected


def test_what_cannot_be_decoded_names_its_field(model: tuple[str, Any, Any]) -> None:
    kind, backend, given = model
    chat = ChatRenderer(backend.core, given)
    for data in (b"hello", tone(0), encoded(sine(3), 16000, "flac")[:3000]):
        with pytest.raises(ParameterError) as caught:
            chat.render(chat.request(conversation(kind, "a", data)), files(kind, data))
        assert caught.value.param == "file 0"
    assert said(model, "What?", two(kind)[0])


def test_what_decodes_audio_may_be_missing(
    model: tuple[str, Any, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A start says so, as a client would be told that its file is broken."""
    kind, backend, _ = model
    monkeypatch.setattr(media_decoder, "READERS", ("soundfile", "a_package_that_is_not_there"))
    made = media_decoder.MediaDecoder(backend.core, MediaRules())
    warned = "audio is refused: what decodes it is not installed: a_package_that_is_not_there"
    assert made.limits["audio"] == 0
    assert (made.limits["video"] > 0) == (kind == "video")
    assert [record.getMessage() for record in caplog.records].count(warned) == (kind == "audio")
