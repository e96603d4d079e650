"""The messages of a chat request: the forms of each role, and what the builder makes of them.

    messages[i] --MESSAGES, by its role--> its fields --READERS--> builder.say, .answer, .result

Models' templates know tool calls but not the deprecated function calls, custom tools or refusals: these are said as
what templates know. Azure's requests have other parts (azure/request.py) in the same messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...model.conversation import MediaKind
from ...model.errors import Fault, ParameterError, UnsupportedError
from ...model.generation import Conversation
from ...model.options import Settings
from ..common.forms import Form, Listed, Tagged, Unread
from ..common.kinds import Filled, Kind, Text
from ..conversation.builder import NONE, Arguments, Builder
from ..conversation.content import MAX_MESSAGES, Content, Contents, PartForm, text_form
from ..conversation.custom_tools import arguments_of
from ..conversation.media import DETAIL, AudioData, ImageEmbeds, MediaUrl
from ..conversation.template_arguments import read_template_arguments

__all__ = ["MESSAGES", "PARTS", "check_ends", "media_form", "message_form", "read_messages", "read_unanswered"]


def media_form(field: str, kind: MediaKind, form: Kind, **beside: Kind | None) -> PartForm:
    """A part with media of a kind in `field`; the fields `beside` it have no effect.

    Cached prefixes are found by themselves. A `uuid` has none either: as vLLM's name for an image in its cache, one
    client's would stand for another's image.
    """

    def add(read: dict[str, Any], content: Content, place: str, settings: Settings) -> None:
        content.media(kind, *read[field])

    unread = dict.fromkeys(("uuid", "cache_control", "prompt_cache_breakpoint"))
    return PartForm({field: form, **beside, **unread}, (field,), add=add)


PARTS: Mapping[str, PartForm] = {
    "text": text_form("text", "cache_control", "prompt_cache_breakpoint"),
    "image_url": media_form("image_url", "image", MediaUrl(), detail=DETAIL),
    "audio_url": media_form("audio_url", "audio", MediaUrl("audio")),
    "input_audio": media_form("input_audio", "audio", AudioData()),
    "video_url": media_form("video_url", "video", MediaUrl("video")),
    "image_embeds": media_form("image_embeds", "image_embeds", ImageEmbeds()),
    "refusal": text_form("refusal"),
}
"""The types of parts; which of them a role has: message_form."""

FUNCTION = Form({"name": Filled(), "arguments": Arguments()}, ("name",))
CALL = Tagged(
    "type",
    {
        "function": Form({"id": Text(), "function": FUNCTION, "index": None}, ("id", "function")),
        "custom": Form(
            {"id": Text(), "custom": Form({"name": Filled(), "input": Text()}, ("name", "input")), "index": None},
            ("id", "custom"),
        ),
    },
    infer=lambda call: "function",
)


def _infer(part: dict[str, Any]) -> str | None:
    """Media may be told by their field, as in vLLM's server."""
    return next((name for name in MEDIA if part.get(name) is not None), None)


MEDIA = ("image_url", "image_embeds", "audio_url", "input_audio", "video_url")
"""Types of parts that are the names of their fields, in the order in which vLLM looks for them."""


def message_form(roles: Iterable[str], parts: Mapping[str, PartForm], *, others: bool = False) -> Listed:
    """The messages of a dialect, by their roles, with its own types of parts. `others`: roles may have other names."""
    seen = {name: part for name, part in parts.items() if name != "refusal"}
    said = {name: part for name, part in parts.items() if name in ("text", "refusal")}
    texts = {name: part for name, part in parts.items() if name == "text"}

    def contents(role: str, forms: Mapping[str, PartForm]) -> Contents:
        return Contents(forms, f"from the role {role!r}", _infer if "image_url" in forms else None)

    forms = {
        "system": Form({"content": contents("system", texts), "name": Text()}, ("content",)),
        "developer": Form({"content": contents("developer", texts), "name": Text()}, ("content",)),
        "user": Form({"content": contents("user", seen), "name": Text()}, ("content",)),
        "assistant": Form(
            {
                "content": contents("assistant", said),
                "name": Text(),
                "tool_calls": Listed(CALL, most=MAX_MESSAGES, noun="tool calls"),
                "function_call": Unread(FUNCTION),
                "refusal": Text(),
                "reasoning": Text(),
                "reasoning_content": Text(),
                **dict.fromkeys(("annotations", "audio", "id")),
            }
        ),
        "tool": Form({"content": contents("tool", seen), "name": Text(), "tool_call_id": Text()}, ("tool_call_id",)),
        "function": Form({"content": contents("function", texts), "name": Filled()}, ("name",)),
    }
    other = Form({"content": contents("other", seen), "name": Text()}, ("content",)) if others else None
    message = Tagged("role", {role: forms[role] for role in roles}, other=other)
    return Listed(message, 1, MAX_MESSAGES, "messages")


ROLE = re.compile(r"[\w.-]{1,64}", re.ASCII)
"""What a role that is not one of ours may be called."""
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
MESSAGES = message_form(ROLES, PARTS, others=True)


def read_messages(messages: list[tuple[str, dict[str, Any]]], settings: Settings) -> Builder:
    """What the messages say, as MESSAGES has read them; raises RequestError, naming the place."""
    builder = Builder()
    function_call = "call_function"
    for index, (role, read) in enumerate(messages):
        content = read.get("content", "")
        if role == "assistant":
            if "function_call" in read:
                function_call = f"call_function_{index}"
            called = read.pop("function_call", None)
            if called and not read.get("tool_calls"):
                read["function_call"] = FUNCTION.read(f"messages[{index}].function_call", called, settings)
            _answer(builder, read, content, function_call)
        elif role == "tool":
            builder.result(read["tool_call_id"], content, name=read.get("name", ""))
        elif role == "function":
            builder.result(function_call, content, name=read["name"])
        else:
            if role not in ROLES and not ROLE.fullmatch(role):
                raise UnsupportedError.of(
                    f"messages[{index}].role", role[:64], "a role of up to 64 letters, digits, '_', '.' or '-'"
                )
            builder.say(role, content, read.get("name", ""))
    return builder


def check_ends(*, continues: bool, prompts: bool) -> None:
    """Raises ParameterError where the last message is to be gone on with and a new one to be begun."""
    if continues and prompts:
        name = "continue_final_message"
        raise ParameterError.because(Fault(name, "cannot be combined with add_generation_prompt"))


def read_unanswered(values: Mapping[str, Any], settings: Settings) -> tuple[Conversation, dict[str, str]]:
    """`messages` that are embedded or classified, by the values of UNANSWERED, and what the client calls their parts;
    raises RequestError.
    """
    check_ends(continues=values["continue_final_message"], prompts=values["add_generation_prompt"])
    builder = read_messages(values["messages"], settings)
    conversation = Conversation(
        messages=builder.messages(),
        template_arguments=read_template_arguments(values["template_arguments"] or {}),
        processor_arguments=values["processor_arguments"] or {},
        reader_arguments=values["reader_arguments"] or {},
        chat_template=values["chat_template"],
        add_generation_prompt=values["add_generation_prompt"],
        continue_final_message=values["continue_final_message"],
        add_special_tokens=values["add_special_tokens"] or False,
    )
    return conversation, {**builder.fields, "prompt.chat_template": "chat_template"}


def _answer(builder: Builder, read: dict[str, Any], content: str | Content, function_call: str) -> None:
    turn = builder.answer()
    turn.name = read.get("name", "")
    turn.say(read["refusal"] if "refusal" in read and "content" not in read else content)
    if reasoning := read.get("reasoning") or read.get("reasoning_content"):
        turn.reasoning.append(reasoning)
    for kind, call in read.get("tool_calls", ()):
        called = call[kind]
        arguments = called.get("arguments", NONE) if kind == "function" else arguments_of(called["input"])
        turn.call(call["id"], called["name"], arguments)
    if function := read.get("function_call"):
        turn.call(function_call, function["name"], function.get("arguments", NONE))
