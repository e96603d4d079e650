"""Images and audio beside Mistral's tokenizer: prompts and media are those of vLLM's server, token by token."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lmi.model.vllm.mistral.media import render_media

from ....kit.api.dialects import parse
from ....kit.api.errors import RequestError
from ....kit.api.options import make_settings
from ....kit.api.types import MediaFile, Settings
from ....kit.engines.backends import NUMBERS
from ....kit.engines.said import SaidEngine
from ....kit.engines.start import in_process
from ....kit.hosts.host import FAST_OPTIONS
from ....kit.media.sounds import encoded, wav
from ....kit.media.sounds import noise as noises
from ....kit.media.voxtral import voxtral_directory
from ....kit.models.mistral import mistral_directory
from ....kit.models.pictures import data_url, noise, png
from ....kit.models.pixtral import IMAGES, PATCH, pixtral_directory, why_not

pytestmark = pytest.mark.engine

Body = dict[str, Any]


def image(width: int, height: int, red: int = 0) -> Body:
    return {"type": "image_url", "image_url": {"url": data_url(png(width, height, (red, 0, 0)))}}


def text(said: str) -> Body:
    return {"type": "text", "text": said}


def user(*parts: Body) -> Body:
    return {"role": "user", "content": [*parts]}


def result(given: str, *parts: Body) -> Body:
    return {"role": "tool", "tool_call_id": given, "content": [*parts]}


def called(*ids: str) -> Body:
    calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


WIDE, HIGH, SMALL, LARGE = image(100, 40), image(40, 100), image(1, 1), image(700, 300)
"""LARGE is made smaller."""
SYSTEM = {"role": "system", "content": "Be brief."}
OK = {"role": "assistant", "content": "ok"}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
ONE, TWO = "abcdefgh1", "abcdefgh2"
CONVERSATIONS: dict[str, Body] = {
    "an image alone": {"messages": [user(WIDE)]},
    "before a text": {"messages": [user(HIGH, text("a"))]},
    "behind a text": {"messages": [user(text("a"), WIDE)]},
    "behind two texts": {"messages": [user(text("a"), text("b"), WIDE)]},
    "between texts": {"messages": [user(text("a"), WIDE, text("b"))]},
    "several": {"messages": [user(text("a"), WIDE, text("b"), HIGH)]},
    "several in a row": {"messages": [user(WIDE, HIGH, SMALL, text("a"))]},
    "the same again": {"messages": [user(WIDE, WIDE)]},
    "large and small": {"messages": [user(LARGE, text("a"), SMALL)]},
    "behind a system's message": {"messages": [SYSTEM, user(text("a"), WIDE)]},
    "in several turns": {"messages": [SYSTEM, user(text("a"), WIDE), OK, user(HIGH, text("b")), OK, user(text("c"))]},
    "in messages in a row": {"messages": [user(text("a"), WIDE), user(HIGH, text("b"))]},
    "beside tools": {"messages": [user(text("a"), WIDE)], "tools": TOOLS},
    "before a call": {"messages": [user(text("a"), WIDE), called(ONE), result(ONE, text("b"))], "tools": TOOLS},
    "gone on with": {
        "messages": [user(WIDE, text("a")), {"role": "assistant", "content": "It is"}],
        "continue_final_message": True, "add_generation_prompt": False,
    },
}  # fmt: skip

ASKED, LOOKED = user(text("Look!")), called(ONE, TWO)
RESULTS: dict[str, tuple[list[Body], list[Body]]] = {
    "an image": (
        [ASKED, called(ONE), result(ONE, text("a"), WIDE)],
        [ASKED, called(ONE), result(ONE, text("a")), user(WIDE)],
    ),
    "several": (
        [ASKED, LOOKED, result(ONE, text("a"), WIDE), result(TWO, HIGH, text("b"), SMALL), user(text("c"))],
        [ASKED, LOOKED, result(ONE, text("a")), result(TWO, text("b")), user(WIDE, HIGH, SMALL, text("c"))],
    ),
}
"""Images in results; and where they stand before version 15, which alone has places for them there."""


@pytest.fixture(scope="module", params=IMAGES)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaidEngine]:
    if (why := why_not()) is not None:
        pytest.skip(why)
    folder = pixtral_directory(tmp_path_factory.mktemp("pixtral") / "model", request.param)
    made = SaidEngine(folder, tool_call_parser="mistral", limit_mm_per_prompt=json.dumps({"image": 3}))
    yield made
    made.close()


def media(body: Body, kind: Any = "image") -> list[MediaFile]:
    """Those of a body, in their order."""
    contents = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
    name = f"{kind}_url"
    urls = [part[name]["url"] for content in contents for part in content if part["type"] == name]
    return [
        MediaFile(base64.b64decode(url.partition(",")[2]), f"{kind} {place}", kind) for place, url in enumerate(urls)
    ]


def seen(prompt: Any) -> tuple[list[int], Any, Any]:
    """A prompt's tokens, what its media are known by, and where each of them stands."""
    ((_, found),) = prompt["mm_placeholders"].items()
    return [*prompt["prompt_token_ids"]], prompt["mm_hashes"], [(one.offset, one.length) for one in found]


def ours(engine: SaidEngine, body: Body, kind: str = "image") -> tuple[list[int], Any, Any]:
    (generation,) = parse("openai", json.loads(json.dumps(body)), engine.settings).generations
    return seen(engine.backend.prepare(next(NUMBERS), generation, media(body, kind)).prompt)


def vllms(engine: SaidEngine, body: Body) -> tuple[list[int], Any, Any]:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.renderers.online_renderer import OnlineRenderer

    core = engine.core
    renderer: Any = OnlineRenderer(
        core.model_config, core.renderer, request_logger=None, chat_template=None,
        chat_template_content_format="auto", enable_auto_tools=True, tool_parser="mistral",
    )  # fmt: skip
    request: Any = ChatCompletionRequest(**json.loads(json.dumps(body)))
    _, (prompt,) = asyncio.run(renderer.render_chat(request, skip_mm_cache=True))
    return seen(prompt)


def test_how_many_images_the_model_takes(engine: SaidEngine) -> None:
    assert engine.backend.info.images == 3


def test_prompts_are_those_of_vllms_server(engine: SaidEngine) -> None:
    made = {what: (ours(engine, body), vllms(engine, body)) for what, body in CONVERSATIONS.items()}
    assert {what: pair for what, pair in made.items() if pair[0] != pair[1]} == {}


def test_images_in_results(engine: SaidEngine) -> None:
    """What vLLM's server refuses has them in a user's message, as with templates that do not show them."""
    for what, (given, followed) in RESULTS.items():
        body = {"messages": given, "tools": TOOLS}
        if engine.core.get_tokenizer().version >= 15:
            assert ours(engine, body) == vllms(engine, body), what
            continue
        with pytest.raises(ValueError, match="ImageURLChunk"):
            vllms(engine, body)
        assert ours(engine, body) == vllms(engine, {"messages": followed, "tools": TOOLS}), what


def test_an_image_that_is_to_be_turned(engine: SaidEngine) -> None:
    """As cameras write them. vLLM turns it, mistral-common does not: the server finds no place for it."""
    from PIL import Image as Picture

    picture = Picture.open(BytesIO(png(100, 40)))
    turned, upright = BytesIO(), BytesIO()
    orientation = Picture.Exif()
    orientation[0x0112] = 6
    picture.save(turned, "PNG", exif=orientation)
    picture.transpose(Picture.Transpose.ROTATE_270).save(upright, "PNG")
    bodies = [
        {"messages": [user({"type": "image_url", "image_url": {"url": data_url(file.getvalue())}}, text("a"))]}
        for file in (turned, upright)
    ]
    with pytest.raises((ValueError, RuntimeError)):
        vllms(engine, bodies[0])
    tokens, _, places = ours(engine, bodies[0])
    expected, _, expected_places = vllms(engine, bodies[1])
    assert (tokens, places) == (expected, expected_places)


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_who_shows_no_images(engine: SaidEngine, role: str) -> None:
    with pytest.raises(RequestError) as raised:
        ours(engine, {"messages": [user(text("a")), {"role": role, "content": [WIDE]}, user(text("a"))]})
    assert raised.value.status == 400
    assert raised.value.param == "messages[1].content[0].type"


@pytest.mark.parametrize("name", IMAGES)
def test_what_is_handed_to_vllm(name: str, tmp_path: Path) -> None:
    """Also where this vLLM does not load Pixtral: the tokens are mistral-common's, of the pictures themselves."""
    from mistral_common.protocol.instruct.chunk import ImageChunk, TextChunk
    from mistral_common.protocol.instruct.messages import UserMessage
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from PIL import Image as Picture
    from vllm.tokenizers.mistral import MistralTokenizer

    tokenizer: Any = MistralTokenizer.from_pretrained(str(pixtral_directory(tmp_path / "model", name)))
    shown = [Picture.new("RGB", size) for size in ((PATCH, PATCH), (100, 40), (700, 300), (613, 417), (3, 4000))]
    content: list[Any] = [TextChunk(text="a"), *(ImageChunk(image=one) for one in shown), TextChunk(text="b")]
    given: list[Any] = []

    def render_cmpl(prompts: list[Any], tokenize: Any, *, prompt_extras: Any, skip_mm_cache: bool) -> list[Any]:
        assert (tokenize, prompt_extras, skip_mm_cache) == ("how", {"more": 1}, True)
        given.extend(prompts)
        return ["made"]

    core = SimpleNamespace(
        get_tokenizer=lambda: tokenizer,
        model_config=SimpleNamespace(is_encoder_decoder=False),
        renderer=SimpleNamespace(render_cmpl=render_cmpl),
    )
    chat = SimpleNamespace(get_apply_chat_template_kwargs=lambda: {"add_generation_prompt": True})
    parts = [text("a"), *({"type": "image_pil", "image_pil": one} for one in shown), text("b")]
    assert render_media(core, [user(*parts)], shown, chat, "how", {"more": 1}) == "made"
    (prompt,) = given
    expected: Any = ChatCompletionRequest(messages=[UserMessage(content=content)])
    assert prompt["prompt_token_ids"] == tokenizer.mistral.encode_chat_completion(expected).tokens
    assert [id(one) for one in prompt["multi_modal_data"]["image"]] == [id(one) for one in shown]


def test_a_model_without_images_takes_none(tmp_path: Path) -> None:
    """Though its tokenizer knows of images, as that of Mistral's own for texts may."""
    folder = mistral_directory(tmp_path / "model", "v7")
    made: Body = json.loads((folder / "tekken.json").read_bytes())
    made["image"] = {"image_patch_size": PATCH, "max_image_size": 128}
    (folder / "tekken.json").write_text(json.dumps(made), "utf-8")
    engine = SaidEngine(folder, tokenizer_mode="mistral", load_format="dummy")
    assert engine.backend.info.images == 0
    engine.close()


# --- Audio ---


@pytest.fixture(scope="module")
def hearing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaidEngine]:
    folder = voxtral_directory(tmp_path_factory.mktemp("voxtral") / "model")
    made = SaidEngine(folder, load_format="dummy", tool_call_parser="mistral")
    yield made
    made.close()


def sound(seconds: float = 1, seed: int = 0) -> Body:
    data = base64.b64encode(wav(noises(seconds, seed=seed))).decode()
    return {"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{data}"}}


def heard_bodies() -> dict[str, Body]:
    called_first = [user(sound(), text("a")), called(ONE), result(ONE, text("b"))]
    return {
        "audio alone": {"messages": [user(sound())]},
        "before a text": {"messages": [user(sound(), text("a"))]},
        "behind a text": {"messages": [user(text("a"), sound())]},
        "between texts": {"messages": [user(text("a"), sound(), text("b"))]},
        "several, of other lengths": {"messages": [user(sound(0.3), text("a"), sound(5, 1), sound(2, 2))]},
        "the same again": {"messages": [user(sound(), sound(), text("a"))]},
        "in several turns": {"messages": [user(sound(), text("a")), OK, user(text("b"), sound(3, 1))]},
        "before a call": {"messages": called_first, "tools": TOOLS},
    }


def test_audio_has_the_place_that_vllms_server_gives_it(hearing: SaidEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.multimodal.media.connector import MEDIA_CONNECTOR_REGISTRY, MediaConnector

    made = {what: ours(hearing, body, "audio") for what, body in heard_bodies().items()}
    # Theirs is the one that the engine has replaced.
    monkeypatch.setitem(MEDIA_CONNECTOR_REGISTRY.name2class, "http", MediaConnector)
    for what, body in heard_bodies().items():
        assert made[what] == vllms(hearing, body), what


def test_audio_that_mistral_common_does_not_read(hearing: SaidEngine) -> None:
    """Of two channels, and at a rate for which it needs a package: by its tokens as if it had neither."""
    import numpy as np

    data = encoded(np.stack([noises(3, 44100), noises(3, 44100, 5)], axis=1), 44100, "mp3")
    url = f"data:audio/mpeg;base64,{base64.b64encode(data).decode()}"
    tokens, _, places = ours(hearing, {"messages": [user({"type": "audio_url", "audio_url": {"url": url}})]}, "audio")
    expected, _, expected_places = ours(hearing, {"messages": [user(sound(3))]}, "audio")
    assert (tokens, places) == (expected, expected_places)


def test_audio_in_a_result_follows_in_a_message(hearing: SaidEngine) -> None:
    """mistral-common takes none there."""
    given = [user(text("Look!")), called(ONE), result(ONE, text("a"), sound())]
    followed = [user(text("Look!")), called(ONE), result(ONE, text("a")), user(sound())]
    bodies = [{"messages": messages, "tools": TOOLS} for messages in (given, followed)]
    assert ours(hearing, bodies[0], "audio") == ours(hearing, bodies[1], "audio")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, Any]]:
    if (why := why_not()) is not None:
        pytest.skip(why)
    folder = pixtral_directory(tmp_path_factory.mktemp("pixtral") / "model", "v13 think")
    options = {**FAST_OPTIONS, "dtype": "fp32", "max_model_len": "1024", "max_rolling_batch_size": "4"}
    settings = make_settings(folder, **options)
    backend = in_process(settings)
    yield settings, backend
    backend.close()


def test_answers_are_those_to_the_image(started: tuple[Settings, Any]) -> None:
    """By vLLM itself, of a folder in Mistral's own form without any option; the last image is known to its core."""
    settings, backend = started
    answers: list[str] = []
    for data in (noise(100, 40, 1), noise(100, 40, 2), noise(100, 40, 1)):
        part = {"type": "image_url", "image_url": {"url": data_url(data)}}
        body = {"messages": [user(text("a"), part)], "max_tokens": 12, "temperature": 0}
        parsed = parse("openai", body, settings)
        backend.add(backend.prepare(next(NUMBERS), parsed.generations[0], media(body)))
        records: list[bytes] = []
        while backend.busy:
            for _, event in backend.step():
                records += parsed.reply.feed(event, 0)
        (answer,) = map(json.loads, records)
        assert answer["usage"]["completion_tokens"] > 0
        answers.append(answer["choices"][0]["message"]["content"])
    assert answers[0] == answers[2]
    assert answers[0] != answers[1]
