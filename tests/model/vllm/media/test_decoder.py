"""Images in the vLLM backend by itself: where they stand in the prompt, and generations that never come to run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ....kit.api.errors import ParameterError, UnsupportedError
from ....kit.api.options import make_settings
from ....kit.api.types import Conversation, Delta, Generation, MediaFile, Sampling, Settings
from ....kit.engines.start import in_process
from ....kit.hosts.host import model_directory
from ....kit.models import vision as vision_model
from ....kit.models.pictures import png

pytestmark = pytest.mark.engine

PART = {"type": "image_url", "image_url": {"url": "taken from the images"}}


@pytest.fixture(scope="module")
def settings(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("vision")
    model = vision_model.build(folder / "built", demo_model)
    options = {"limit_mm_per_prompt": json.dumps({"image": 3})}
    return make_settings(model_directory(model, folder / "model", {}), **options)


@pytest.fixture(scope="module")
def tried() -> list[str]:
    """What vLLM's processor of images was let try, in the order of the tries."""
    return []


@pytest.fixture(scope="module")
def backend(settings: Settings, tried: list[str]) -> Iterator[Any]:
    from vllm.renderers import BaseRenderer

    warm = BaseRenderer._warmup_mm_processor

    def seen(renderer: Any, *arguments: Any, log_prefix: str) -> None:
        warm(renderer, *arguments, log_prefix=log_prefix)
        tried.append(log_prefix)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseRenderer, "_warmup_mm_processor", seen)
        engine = in_process(settings)
    yield engine
    engine.close()


def test_the_start_tries_an_image(backend: Any, tried: list[str]) -> None:
    """As vLLM's server does: the first request does not wait for what is imported and compiled then."""
    assert "Multi-modal" in tried


def generation(*content: str, **sampling: Any) -> Generation:
    """`content`: texts, and "" for an image."""
    parts = [{"type": "text", "text": text} if text else PART for text in content]
    return Generation(
        request_id="test",
        prompt=Conversation(messages=({"role": "user", "content": parts},)),
        sampling=Sampling(**{"temperature": 0.0, "max_tokens": 8, **sampling}),
        overflow="refuse",
    )


def images(*pictures: bytes) -> list[MediaFile]:
    return [MediaFile(data, f"image {number}") for number, data in enumerate(pictures)]


def run(backend: Any, *prepared: Any) -> list[str]:
    """The texts, in the order of the generations' numbers."""
    for one in prepared:
        backend.add(one)
    texts = {one.number: "" for one in prepared}
    while backend.busy:
        for number, event in backend.step():
            if isinstance(event, Delta):
                texts[number] += event.text
    return [text for _, text in sorted(texts.items())]


def test_how_many_images_the_model_takes(backend: Any) -> None:
    assert backend.info.images == 3


FORMATS: list[tuple[str | None, str, str]] = [
    (None, "auto", "a{}b{}"),
    (None, "openai", "a{}b{}"),
    (None, "string", "{}\n{}\na\nb"),
    ("strings.jinja", "auto", "{}\n{}\na\nb"),
]


@pytest.mark.parametrize(("template", "content_format", "content"), FORMATS)
def test_where_images_stand(
    backend: Any, settings: Settings, template: str | None, content_format: Any, content: str
) -> None:
    """By the template where it takes parts, else before the text; each is as many tokens as its own shape asks for."""
    from ....kit.api.engine import ChatRenderer

    given = msgspec.structs.replace(settings, chat_template=template, chat_template_content_format=content_format)
    chat = ChatRenderer(backend.core, given)
    conversation = generation("a", "", "b", "").prompt
    assert isinstance(conversation, Conversation)
    prompt = chat.render(chat.request(conversation), images(png(20, 10), png(10, 20)))
    text = backend.core.get_tokenizer().decode(prompt["prompt_token_ids"], skip_special_tokens=False)
    tile = "<fake_token_around_image>{}" + "<image>" * vision_model.TOKENS
    whole = "\n\n" + tile.format("<global-img>") + "<fake_token_around_image>"
    wide = tile.format("<row_1_col_1>") + tile.format("<row_1_col_2>") + whole
    high = tile.format("<row_1_col_1>") + "\n" + tile.format("<row_2_col_1>") + whole
    assert text == f"<|im_start|>user\n{content.format(wide, high)}<|im_end|>\n<|im_start|>assistant\n"


def test_of_a_prompt_with_images_the_text_is_the_templates(backend: Any) -> None:
    prepared = backend.prepare(1, generation("a", "", "b"), images(png()))
    text = backend.prompt_text(prepared)
    assert text.startswith("<|im_start|>user\na")
    assert text.endswith("b<|im_end|>\n<|im_start|>assistant\n")
    assert text.count("<image>") == 1


def test_images_count_as_the_tokens_that_they_become(backend: Any) -> None:
    asked, pictures = generation("a", "", "b", ""), images(png(20, 10), png(10, 20))
    told = backend.tokenize(msgspec.structs.replace(asked, tokenize=True, tokens=True), pictures)
    assert [token.id for token in told.prefill] == list(backend.prepare(1, asked, pictures).prompt_ids)
    assert told.prompt_tokens > 2 * vision_model.TOKENS
    # What was only counted has left nothing behind: the same images can still be asked about.
    assert run(backend, backend.prepare(2, asked, pictures))


def test_a_prompt_with_images_is_not_cut(backend: Any) -> None:
    """By vLLM 0.23 it would be before the images are tokens; what would be cut is refused by name."""
    picture = images(png())
    tokens = len(backend.prepare(1, generation("", "?"), picture).prompt_ids)
    for enough in (tokens, tokens + 1):
        assert len(backend.prepare(1, generation("", "?", truncate=enough), picture).prompt_ids) == tokens
    for few in (tokens - 1, 1):
        with pytest.raises(UnsupportedError) as caught:
            backend.prepare(1, generation("", "?", truncate=few), picture)
        expected = f"a prompt with images is not cut, expected at least its {tokens} tokens, got {few}"
        assert caught.value.message == f"sampling.truncate: {expected}"
        assert caught.value.param == "sampling.truncate"
    # Without an image the same model's prompts are.
    whole = backend.prepare(1, generation("a word or two")).prompt_ids
    assert backend.prepare(1, generation("a word or two", truncate=4)).prompt_ids == whole[-4:]


def test_generations_that_never_run_leave_their_images_usable(backend: Any) -> None:
    """vLLM's cache between its renderer and its core would take what the one has seen for known to the other."""
    for number in range(4):
        picture = images(png(color=(1, 2, number)))
        if number == 0:
            with pytest.raises(ParameterError):
                backend.prepare(1, generation("", "?", max_tokens=5000), picture)
        elif number == 1:
            backend.prepare(1, generation("", "?"), picture)
        elif number == 2:
            with pytest.raises(ParameterError):
                backend.add(backend.prepare(1, generation("", "?", logit_bias={10**6: 1.0}), picture))
        first = backend.prepare(1, generation("", "?"), picture)
        second = backend.prepare(2, generation("", "?"), picture)
        # The second first: it was prepared when the first one's image was known already.
        (one,), (other,) = run(backend, second), run(backend, first)
        assert one == other


def test_many_threads_prepare_at_once(backend: Any) -> None:
    pictures = [png(20 + number, 20, (10 * number, 0, 0)) for number in range(8)]
    alone = [run(backend, backend.prepare(1, generation("", "?"), images(picture)))[0] for picture in pictures]
    assert len(set(alone)) > 4

    def prepare(number: int) -> Any:
        return backend.prepare(number, generation("", "?"), images(pictures[number % 8]))

    with ThreadPoolExecutor(4) as pool:
        prepared = list(pool.map(prepare, range(32)))
    assert run(backend, *reversed(prepared)) == alone * 4


def test_what_the_models_processor_refuses(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    processor = backend.core.renderer.mm_processor.info.get_hf_processor()

    def refuse(*_: Any, **__: Any) -> Any:
        raise ValueError("absolute aspect ratio must be\nsmaller than 200")

    monkeypatch.setattr(type(processor), "__call__", refuse)
    for count, field in ((1, "image 0"), (2, "prompt")):
        picture = png(color=(77, 77, count))
        with pytest.raises(ParameterError) as caught:
            backend.prepare(1, generation(*[""] * count, "secret"), images(*[picture] * count))
        reason = "the model's image processor refuses it: absolute aspect ratio must be smaller than 200"
        assert caught.value.message == f"{field}: {reason}"
        assert caught.value.param == field


@pytest.mark.parametrize("data", [png()[:-25], b"\x89PNG\r\n\x1a\n", b"GIF89a\x01\0\x01\0\0\0\0", b""])
def test_what_cannot_be_decoded(backend: Any, data: bytes) -> None:
    with pytest.raises(ParameterError, match="image 1: the image cannot be decoded: ") as caught:
        backend.prepare(1, generation("", ""), images(png(), data))
    assert caught.value.param == "image 1"
