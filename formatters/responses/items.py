"""The input of a request, items or a text, and what the builder makes of it; each fault is named by its place.

    message                                     builder.say, or a part of the assistant's answer
    reasoning, function_call, custom_tool_call  a part of the assistant's answer
    function_call_output ...                    builder.result
    additional_tools                            none: its tools join those of the request (tools.py)

What a response gave can be sent back as it came. Items of tools that are not here are refused by their names.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...model.errors import Fault, PayloadError, UnsupportedError
from ...model.options import Settings
from ..common.forms import Form, Listed, Tagged, TextOr, Unread
from ..common.kinds import Filled, Nested, Text
from ..common.schemas import one_of
from ..conversation.builder import NONE, Arguments, Builder, Turn
from ..conversation.content import MAX_MESSAGES, Content, Contents, PartForm, text_form
from ..conversation.custom_tools import arguments_of
from ..conversation.media import DETAIL, AudioData, read_url
from ..dialect import JsonSchema
from .offers import TOOL

__all__ = ["INPUT", "PARTS", "add_items", "additional_tools", "listed"]

Read = dict[str, Any]


def _image(read: Read, content: Content, place: str, settings: Settings) -> None:
    if "image_url" not in read:
        if "file_id" in read:
            raise UnsupportedError.because(Fault(f"{place}.file_id", "not supported, expected image_url"))
        raise PayloadError.because(Fault(f"{place}.image_url", expected="a string", given="None"))
    content.media("image", read_url(read["image_url"], f"{place}.image_url"), f"{place}.image_url")


TEXT = text_form("text", "prompt_cache_breakpoint")
SAID = text_form("text", "annotations", "logprobs", "prompt_cache_breakpoint")
IMAGE = PartForm(
    {"image_url": Text(), "file_id": Text(), "detail": DETAIL, "prompt_cache_breakpoint": None}, add=_image
)


def _audio(read: Read, content: Content, place: str, settings: Settings) -> None:
    content.media("audio", *read["input_audio"])


AUDIO = PartForm({"input_audio": AudioData()}, ("input_audio",), add=_audio)
PARTS: Mapping[str, Mapping[str, PartForm]] = {
    "user": {"input_text": TEXT, "input_image": IMAGE, "input_audio": AUDIO},
    "assistant": {"output_text": SAID, "refusal": text_form("refusal"), "input_text": TEXT},
    "system": {"input_text": TEXT},
    "developer": {"input_text": TEXT},
    "tool": {"input_text": TEXT, "input_image": IMAGE},
}
"""By role, the types of parts that its content may have."""
CONTENTS = {role: Contents(forms, f"from the role {role!r}") for role, forms in PARTS.items()}

BESIDE: Mapping[str, None] = dict.fromkeys(("id", "status"))
"""They say nothing to the model."""
# What programs of OpenAI's servers call has a `caller`.
CALLED: Mapping[str, Filled | None] = {
    "call_id": Filled(), "name": Filled(), "namespace": Filled(), **dict.fromkeys(("caller", "async"))
}  # fmt: skip
OUTPUT: Mapping[str, Filled | Text | Contents | None] = {
    "call_id": Filled(),
    "name": Text(),
    "namespace": Text(),
    "output": CONTENTS["tool"],
    "caller": None,
    **BESIDE,
}
MESSAGE = Tagged(
    "role",
    {
        role: Form(
            {"type": None, "content": CONTENTS[role], "phase": None, **BESIDE},
            () if role == "assistant" else ("content",),
        )
        for role in ("user", "assistant", "system", "developer")
    },
)


def _texts(kind: str) -> Listed:
    return Listed(Tagged("type", {kind: Form({"text": Text()}, ("text",))}), most=MAX_MESSAGES, noun="parts")


ITEM = Tagged(
    "type",
    {
        "function_call": Form({**CALLED, "arguments": Arguments(), **BESIDE}, ("call_id", "name")),
        "function_call_output": Form(OUTPUT),
        "custom_tool_call": Form({**CALLED, "input": Text(), **BESIDE}, ("call_id", "name", "input")),
        "custom_tool_call_output": Form(OUTPUT, ("call_id",)),
        "additional_tools": Form({"role": None, "tools": Unread(Listed(TOOL, noun="tools")), **BESIDE}, ("tools",)),
        "reasoning": Form(
            {
                "content": _texts("reasoning_text"),
                "summary": _texts("summary_text"),
                "encrypted_content": Text(),
                **BESIDE,
            }
        ),
    },
    where=" or 'message'",
)


@dataclass(frozen=True, slots=True)
class Item(Nested):
    """A message, whose type may be left out, or an item of another type."""

    @property
    def schema(self) -> JsonSchema:
        return one_of(MESSAGE.schema, ITEM.schema)

    @property
    def description(self) -> str:
        return "an item"

    def read(self, name: str, given: Any, settings: Settings) -> tuple[str, Any]:
        if isinstance(given, dict) and (
            given.get("type") == "message" or (given.get("type") is None and given.get("role") is not None)
        ):
            return "message", MESSAGE.read(name, given, settings)
        return ITEM.read(name, given, settings)


INPUT = TextOr(Listed(Item(), 1, MAX_MESSAGES, "items"), "a list of items")
Name = Callable[[str | None, str], str]
"""The model's name of a tool, by namespace and name."""


def add_items(builder: Builder, given: Any, place: str, name: Name, settings: Settings) -> None:
    """Items, or a text, which is a message of the user; raises RequestError, naming the place."""
    read = INPUT.read(place, given, settings)
    if isinstance(read, str):
        builder.say("user", read)
        return
    for index, (kind, item) in enumerate(read):
        if kind == "message":
            _message(builder, *item)
        elif kind == "reasoning":
            _reasoning(builder, item)
        elif kind in ("function_call", "custom_tool_call"):
            called = name(item.get("namespace"), item["name"])
            arguments = arguments_of(item["input"]) if kind == "custom_tool_call" else item.get("arguments", NONE)
            _turn(builder).call(item["call_id"], called, arguments)
        elif kind != "additional_tools":
            _result(builder, item, f"{place}[{index}]", name)


def _turn(builder: Builder, fits: Callable[[Turn], bool] = lambda turn: True) -> Turn:
    """The answer that an item of the assistant's belongs to: the last one, where it fits, or a new one."""
    last = builder.turn
    return last if last is not None and fits(last) else builder.answer()


def _message(builder: Builder, role: str, read: Read) -> None:
    content = read.get("content", "")
    if role != "assistant":
        builder.say(role, content)
        return
    # A further text of an answer comes after its calls.
    _turn(builder, lambda turn: bool(turn.calls) or not turn.said).say(content)


def _result(builder: Builder, read: Read, place: str, name: Name) -> None:
    """The result of a call; or of none, which a client gives by itself and tells by the name of a tool of its own."""
    output = read.get("output", "")
    if "call_id" in read:
        builder.result(read["call_id"], output)
        return
    if not read.get("name"):
        raise PayloadError.of(f"{place}.call_id", None, Filled().description)
    builder.result("", output, name=name(read.get("namespace") or None, read["name"]))


def _reasoning(builder: Builder, read: Read) -> None:
    """Its content, or what is carried for it, or its summary."""
    texts = ["".join(one["text"] for _, one in read.get(name, ())) for name in ("content", "summary")]
    reasoning = texts[0] or builder.uncarried(read.get("encrypted_content", "")) or texts[1]
    if reasoning:
        _turn(builder, lambda turn: turn.empty).reasoning.append(reasoning)


def additional_tools(given: Any, place: str) -> Iterator[tuple[Any, str]]:
    """The tools among items that are not read yet, with their places; raises PayloadError."""
    for index, item in enumerate(given if isinstance(given, list) else ()):
        if isinstance(item, dict) and item.get("type") == "additional_tools":
            name, tools = f"{place}[{index}].tools", item.get("tools")
            if not isinstance(tools, list):
                raise PayloadError.of(name, tools, "a list of tools")
            yield from ((one, f"{name}[{number}]") for number, one in enumerate(tools))


def listed(given: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items of an input, which has been read, in the form in which they are listed: full, each with an id."""
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return [_full(item) for item in given]


def _full(item: dict[str, Any]) -> dict[str, Any]:
    kind = item.get("type") or "message"
    full = {"id": PREFIXES[kind] + uuid.uuid4().hex, "type": kind, "status": "completed"}
    full |= {name: value for name, value in item.items() if value is not None}
    for name in EMPTY.get(kind, ()):
        full.setdefault(name, "")
    if kind == "message" and isinstance(content := full["content"], str):
        part: dict[str, Any] = {"type": "input_text", "text": content}
        if full["role"] == "assistant":
            part = {"type": "output_text", "text": content, "annotations": []}
        full["content"] = [part]
    return full


EMPTY: Mapping[str, tuple[str, ...]] = {
    "message": ("content",),
    "function_call": ("arguments",),
    "function_call_output": ("output",),
    "custom_tool_call_output": ("output",),
}
"""By type, what a client may leave out, and what lists of items have all the same."""
PREFIXES = {
    "message": "msg_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
    "additional_tools": "at_",
    "reasoning": "rs_",
}
