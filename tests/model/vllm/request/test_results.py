"""Images in the results of calls: they stay where the template shows them, and follow where it does not."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lmi.model.vllm.request.results import holds_media, shows_images

from ....kit.api.conversation import Call, Media, Message, Text
from ....kit.api.engine import ChatRenderer
from ....kit.api.types import Conversation, MediaFile
from ....kit.engines.said import SaidEngine
from ....kit.models import vision as vision_model
from ....kit.models.pictures import png

SEEN = Message("tool", (Text("Seen:"), Media("image", "u")), call_id="a")


@pytest.mark.unit
def test_which_conversations_have_such_images() -> None:
    others = [Message("user", (Media("image", "u"),)), Message("tool", (Text("a"),), call_id="a"), Message("tool", "a")]
    assert not holds_media([*others, {"role": "tool", "content": "a"}])
    assert holds_media([*others, SEEN])


@pytest.mark.unit
@pytest.mark.parametrize(
    ("made", "shown"),
    [
        ("Hi <image> 3141592653", True),
        ("Hi <image>", False),
        ("[{'type': 'text', 'text': '3141592653'}] <image>", False),
        (ValueError("no place for the image"), False),
        (RuntimeError("no place for the image"), False),
    ],
)
def test_what_a_trial_says(made: str | Exception, shown: bool) -> None:
    def render(messages: list[dict[str, Any]], picture: bytes) -> str:
        assert messages[-1]["role"] == "tool"
        assert picture.startswith(b"\x89PNG")
        if isinstance(made, Exception):
            raise made
        return made

    assert shows_images(render) is shown


@pytest.mark.unit
def test_the_machines_fault_is_not_the_templates() -> None:
    def render(messages: list[dict[str, Any]], picture: bytes) -> str:
        raise MemoryError

    with pytest.raises(MemoryError):
        shows_images(render)


TEXT_ALONE = vision_model.OPENAI_TEMPLATE.replace(
    "{%- if message.content is string %}",
    "{%- if message.role == 'tool' %}{{- '<result>' ~ message.content ~ '</result>' }}"
    "{%- elif message.content is string %}",
)
"""Writes a result as text, as most do: of parts, Python's form of a list."""


@pytest.fixture(scope="module")
def engine(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaidEngine]:
    model = vision_model.build(tmp_path_factory.mktemp("results") / "model", demo_model)
    made = SaidEngine(model, limit_mm_per_prompt=json.dumps({"image": 3}))
    yield made
    made.close()


PICTURE = png(20, 10)
URL = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
ASKED = {"role": "user", "content": "Look!"}
CALLED = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
LOOKED = {"role": "assistant", "content": None, "tool_calls": [CALLED]}
PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "Seen:"},
    {"type": "image_url", "image_url": {"url": URL}},
]


def vllms(core: Any, template: str | None, messages: list[Any]) -> list[int]:
    """The tokens of the prompt that vLLM's own server makes."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.renderers.online_renderer import OnlineRenderer

    form: Any = ChatCompletionRequest
    made: Any = OnlineRenderer(
        core.model_config,
        core.renderer,
        request_logger=None,
        chat_template=template,
        chat_template_content_format="auto",
    )
    _, (prompt,) = asyncio.run(made.render_chat(form(messages=messages), skip_mm_cache=True))
    return [*prompt["prompt_token_ids"]]


STAYS = [ASKED, LOOKED, {"role": "tool", "tool_call_id": "a", "content": PARTS}]
FOLLOWS = [
    ASKED,
    LOOKED,
    {"role": "tool", "tool_call_id": "a", "content": "Seen:"},
    {"role": "user", "content": PARTS[1:]},
]


@pytest.mark.engine
@pytest.mark.parametrize(
    ("template", "of_a_request", "prompt"),
    [
        (None, False, STAYS),
        (vision_model.STRING_TEMPLATE, False, STAYS),
        (TEXT_ALONE, False, FOLLOWS),
        (TEXT_ALONE, True, FOLLOWS),
        (vision_model.OPENAI_TEMPLATE, True, STAYS),
    ],
    ids=["parts", "text with places", "text alone", "text alone, a request's", "parts, a request's"],
)
def test_where_a_results_image_stands(
    engine: SaidEngine, template: str | None, of_a_request: bool, prompt: list[Any]
) -> None:
    """Where it stays, the prompt is the one of vLLM's own server."""
    settings, core = engine.settings, engine.core
    given = settings if of_a_request else msgspec.structs.replace(settings, chat_template=template)
    chat = ChatRenderer(core, given)
    conversation = Conversation(
        messages=(Message("user", "Look!"), Message("assistant", calls=(Call("a", "f", "{}"),)), SEEN),
        chat_template=template if of_a_request else None,
    )
    for _ in range(2):
        made = chat.render(chat.request(conversation), [MediaFile(PICTURE, "image 0")])
        assert [*made["prompt_token_ids"]] == vllms(core, template, prompt)
