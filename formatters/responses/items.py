"""The input of a request, items or a text, as the messages that templates take; each fault is named by its place.

    message                                     {"role", "content"}
    reasoning, message of the assistant,
    function_call, function_call ...            one message of the assistant: {"reasoning", "content", "tool_calls"}
    function_call_output                        {"role": "tool", "tool_call_id", "content"}
    custom_tool_call, custom_tool_call_output   the same as these of functions
    additional_tools                            none: its tools join those of the request (tools.py)

What a response gave can be sent back as it came. Items of tools that are not here are refused by their names.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...model.errors import ParameterError, PayloadError, UnsupportedError
from ...model.options import Settings
from ..base import JsonSchema
from ..common.custom_tools import arguments_of
from ..common.fields import handle_unknown_field
from ..common.images import DETAILS, read_image_part
from ..common.kinds import Object, Text
from ..common.schemas import FILLED, STRING, array, objects, one_of
from ..openai.messages import MAX_MESSAGES, read_arguments, read_filled
from .offers import TOOL_SCHEMA

__all__ = ["INPUT_SCHEMA", "Messages", "additional_tools", "listed"]

Message = dict[str, Any]

ROLES = ("user", "assistant", "system", "developer")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "message": ("type", "role", "content", "id", "status", "phase"),
    "function_call": ("type", "call_id", "name", "namespace", "arguments", "id", "status"),
    "function_call_output": ("type", "call_id", "output", "id", "status", "name"),
    "custom_tool_call": ("type", "call_id", "name", "namespace", "input", "id", "status"),
    "custom_tool_call_output": ("type", "call_id", "output", "id", "status", "name"),
    "additional_tools": ("type", "role", "tools", "id", "status"),
    "reasoning": ("type", "content", "summary", "encrypted_content", "id", "status"),
}
"""By the item's type, the fields that are known. An `id` and a `status` say nothing to the model."""

TEXTS: Mapping[str, str] = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
"""By the part's type, the field that has its text."""
PARTS: Mapping[str, tuple[str, ...]] = {
    "user": ("input_text", "input_image"),
    "system": ("input_text",),
    "developer": ("input_text",),
    "assistant": ("output_text", "refusal", "input_text"),
    "tool": ("input_text",),
}
"""By role, the types of parts that its content may have."""


class Messages:
    """The messages that items make, in the order in which items are added."""

    def __init__(self, settings: Settings, instructions: str | None, name: Callable[[str | None, str], str]) -> None:
        """`instructions`: the system message in front. `name`: the model's name of a tool, by namespace and name."""
        self._settings = settings
        self._name = name
        self._messages: list[Message] = []
        self._count = 0
        if instructions is not None:
            self._messages.append({"role": "system", "content": instructions})

    @property
    def messages(self) -> tuple[Message, ...]:
        """As templates take them: without calls they want a content."""
        return tuple(
            {"content": "", **message} if "tool_calls" not in message else message for message in self._messages
        )

    def add(self, given: Any, place: str = "input") -> None:
        """Items, or a text, which is a message of the user; raises RequestError, naming the place."""
        if isinstance(given, str):
            self._messages.append({"role": "user", "content": given})
            return
        if not isinstance(given, list):
            raise PayloadError.of(place, given, "a string or a list of items")
        if not given:
            raise ParameterError.of(place, given, "at least one item")
        self._take(len(given), place)
        for index, one in enumerate(given):
            self._add(one, f"{place}[{index}]")

    def _take(self, count: int, place: str) -> None:
        """Templates go through messages and parts one by one."""
        self._count += count
        if self._count > MAX_MESSAGES:
            raise ParameterError(
                f"{place}: expected at most {MAX_MESSAGES} items and parts, those of earlier responses included, got "
                f"{self._count}",
                place,
            )

    def _add(self, given: Any, place: str) -> None:
        item = Object().read(place, given)
        kind = item.get("type")
        if kind is None and item.get("role") is not None:
            kind = "message"
        if kind == "item_reference":
            message = "not supported, send the item itself (clients that send references do so with store: false)"
            raise UnsupportedError(f"{place}.type: 'item_reference' is {message}", f"{place}.type")
        if not isinstance(kind, str) or kind not in FIELDS:
            expected = ", ".join(map(repr, FIELDS))
            refused = UnsupportedError if isinstance(kind, str) else PayloadError
            raise refused.of(f"{place}.type", kind, f"one of {expected}")
        for name, value in item.items():
            if value is not None and name not in FIELDS[kind]:
                handle_unknown_field(name, FIELDS[kind], self._settings, "input[].")
        if kind == "message":
            self._message(item, place)
        elif kind == "reasoning":
            self._reasoning(item, place)
        elif kind == "function_call":
            self._call(item, place, read_arguments(item.get("arguments"), f"{place}.arguments"))
        elif kind == "custom_tool_call":
            self._call(item, place, arguments_of(Text().read(f"{place}.input", item.get("input"))))
        elif kind != "additional_tools":
            call_id = read_filled(item.get("call_id"), f"{place}.call_id")
            output = self._content(item.get("output"), "tool", f"{place}.output")
            self._messages.append({"role": "tool", "tool_call_id": call_id, "content": output})

    def _message(self, item: Message, place: str) -> None:
        role = Text(ROLES).read(f"{place}.role", item.get("role"))
        content = self._content(item.get("content"), role, f"{place}.content")
        if role == "assistant":
            self._assistant("content")["content"] = content
        else:
            self._messages.append({"role": role, "content": content})

    def _assistant(self, *without: str) -> Message:
        """The assistant's last message if nothing came after it and it has none of these, or a new one."""
        last = self._messages[-1] if self._messages else {}
        if last.get("role") != "assistant" or any(name in last for name in without):
            last = {"role": "assistant"}
            self._messages.append(last)
        return last

    def _reasoning(self, item: Message, place: str) -> None:
        """Its content, or its summary where there is none; what is encrypted, others have made."""
        texts: list[str] = []
        for name, kind in (("content", "reasoning_text"), ("summary", "summary_text")):
            parts = item.get(name)
            if parts is None or texts:
                continue
            if not isinstance(parts, list):
                raise PayloadError.of(f"{place}.{name}", parts, "a list of parts")
            self._take(len(parts), place)
            for index, one in enumerate(parts):
                shown = f"{place}.{name}[{index}]"
                part = Object().read(shown, one)
                Text((kind,)).read(f"{shown}.type", part.get("type"))
                texts.append(Text().read(f"{shown}.text", part.get("text")))
        if texts:
            # Templates know it by the one name or the other.
            reasoning = "".join(texts)
            self._assistant("reasoning", "content", "tool_calls").update(
                reasoning=reasoning, reasoning_content=reasoning
            )

    def _call(self, item: Message, place: str, arguments: str) -> None:
        name, namespace = read_filled(item.get("name"), f"{place}.name"), item.get("namespace")
        if namespace is not None:
            read_filled(namespace, f"{place}.namespace")
        function = {"name": self._name(namespace, name), "arguments": arguments}
        call = {"id": read_filled(item.get("call_id"), f"{place}.call_id"), "type": "function", "function": function}
        self._assistant().setdefault("tool_calls", []).append(call)

    def _content(self, given: Any, role: str, place: str) -> str | list[Message]:
        if isinstance(given, str):
            return given
        if given is None and role in ("assistant", "tool"):
            return ""
        if not isinstance(given, list):
            raise PayloadError.of(place, given, "a string or a list of parts")
        self._take(len(given), place)
        return [_part(one, role, f"{place}[{index}]") for index, one in enumerate(given)] or ""


def additional_tools(given: Any, place: str) -> Iterator[tuple[Any, str]]:
    """The tools among items that are not read yet, with their places; raises PayloadError."""
    for index, item in enumerate(given if isinstance(given, list) else ()):
        if isinstance(item, dict) and item.get("type") == "additional_tools":
            name, tools = f"{place}[{index}].tools", item.get("tools")
            if not isinstance(tools, list):
                raise PayloadError.of(name, tools, "a list of tools")
            yield from ((one, f"{name}[{number}]") for number, one in enumerate(tools))


def _part(given: Any, role: str, place: str) -> Message:
    part = Object().read(place, given)
    kind = part.get("type")
    if kind not in PARTS[role]:
        expected = " or ".join(map(repr, PARTS[role]))
        refused = UnsupportedError if isinstance(kind, str) else PayloadError
        raise refused.of(f"{place}.type", kind, f"{expected} from the role {role!r}")
    if kind in TEXTS:
        name = TEXTS[kind]
        return {"type": "text", "text": Text().read(f"{place}.{name}", part.get(name))}
    if part.get("file_id") is not None:
        raise UnsupportedError(f"{place}.file_id: not supported, expected image_url", f"{place}.file_id")
    Text().read(f"{place}.image_url", part.get("image_url"))
    return read_image_part({"image_url": part["image_url"], "detail": part.get("detail")}, place)


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


def _item(kind: str, *required: str, **fields: JsonSchema) -> JsonSchema:
    return objects(["type", *required], type={"const": kind}, **fields)


def _text_part(kind: str) -> JsonSchema:
    return _item(kind, TEXTS.get(kind, "text"), **{TEXTS.get(kind, "text"): STRING})


IMAGE = _item("input_image", "image_url", image_url=FILLED, detail={"enum": [*DETAILS]})


def _schema() -> JsonSchema:
    messages: list[JsonSchema] = []
    for role in ROLES:
        parts = one_of(*(IMAGE if kind == "input_image" else _text_part(kind) for kind in PARTS[role]))
        content = one_of(STRING, array(parts))
        required = ["role"] if role == "assistant" else ["role", "content"]
        messages.append(objects(required, role={"const": role}, content=content, type={"const": "message"}))
    named = {"call_id": FILLED, "name": FILLED, "namespace": FILLED}
    output = one_of(STRING, array(_text_part("input_text")))
    return one_of(
        *messages,
        _item("function_call", "call_id", "name", arguments=STRING, **named),
        _item("custom_tool_call", "call_id", "name", "input", input=STRING, **named),
        *(
            _item(kind, "call_id", call_id=FILLED, output=output)
            for kind in ("function_call_output", "custom_tool_call_output")
        ),
        _item("additional_tools", "tools", tools=array(TOOL_SCHEMA)),
        _item("reasoning", content=array(_text_part("reasoning_text")), summary=array(_text_part("summary_text"))),
    )


INPUT_SCHEMA = one_of(STRING, array(_schema(), 1, MAX_MESSAGES))
