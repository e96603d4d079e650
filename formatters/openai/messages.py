"""The messages of a chat request: their forms judged, each fault named by its place, and what templates do not know
brought into the forms that they do.

    messages[i] --role--> its reader --> {"role", "content", ...}

Models' templates know tool calls but not the deprecated function calls, and no refusals: both are rewritten. Nulls and
fields without meaning for the model (a client may send back what it got) are left out. A list of no parts is an empty
text; only what users and systems say must be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ...model.errors import ParameterError, PayloadError, UnsupportedError
from ...model.options import Settings
from ..base import JsonSchema, encode
from ..common.custom_tools import arguments_of
from ..common.fields import handle_unknown_field
from ..common.images import DETAILS, is_image_part, read_image_part
from ..common.kinds import Object, Text
from ..common.schemas import FILLED, STRING, array, objects, one_of

__all__ = [
    "MAX_MESSAGES",
    "check_number",
    "messages_schema",
    "read_arguments",
    "read_filled",
    "read_messages",
]

Message = dict[str, Any]

PARTS: dict[str, tuple[str, ...]] = {
    "system": ("text",),
    "developer": ("text",),
    "user": ("text", "image_url"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
    "function": ("text",),
}
"""By role, the types of parts that its content may have."""

FUNCTION_CALL = objects(["name"], name=FILLED, arguments=STRING)
TOOL_CALL: JsonSchema = one_of(
    {
        "type": "object",
        # The type may be left out, but it may not be null.
        "properties": {"id": FILLED, "type": {"const": "function"}, "function": FUNCTION_CALL},
        "required": ["id", "function"],
    },
    objects(
        ["id", "type", "custom"],
        id=FILLED,
        type={"const": "custom"},
        custom=objects(["name", "input"], name=FILLED, input=STRING),
    ),
)
USUAL: Mapping[str, JsonSchema] = {"role": {}, "content": {}, "name": STRING}
"""What role and content may be depends on the role (messages_schema)."""

FIELDS: Mapping[str, Mapping[str, JsonSchema]] = {
    "system": USUAL,
    "developer": USUAL,
    "user": USUAL,
    "assistant": {
        **USUAL, "tool_calls": array(TOOL_CALL), "function_call": {}, "refusal": STRING, "reasoning_content": STRING,
        "reasoning": STRING, "annotations": {}, "audio": {}, "id": {},
    },
    "tool": {**USUAL, "tool_call_id": FILLED},
    "function": {**USUAL, "name": FILLED},
}  # fmt: skip
"""By role, the fields that are known, and what they may be."""
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "assistant": ("role",),
    "tool": ("role", "tool_call_id"),
    "function": ("role", "name"),
}
"""By role, the fields that must be there, where these are not `role` and `content`."""

RAW = "raw_arguments"
"""What holds arguments of a call that are no JSON object."""

MAX_MESSAGES = 1 << 14
"""Messages, parts of their contents and calls in them, together; a message is ten tokens or so with its frame."""

PART_FIELDS = ("type", "text", "refusal", "image_url", "detail", "uuid", "cache_control")
"""A `uuid` has no effect: as vLLM's name for an image in its cache, one client's would stand for another's image."""


IMAGE = one_of(FILLED, objects(["url"], url=FILLED, detail={"enum": [*DETAILS]}))
PART_SCHEMAS: Mapping[str, JsonSchema] = {
    "text": objects(["type", "text"], type={"const": "text"}, text=STRING),
    "refusal": objects(["type", "refusal"], type={"const": "refusal"}, refusal=STRING),
    "image_url": objects(["image_url"], type={"const": "image_url"}, image_url=IMAGE, detail={"enum": [*DETAILS]}),
}


def messages_schema(roles: Iterable[str] = tuple(FIELDS), part: JsonSchema | None = None) -> JsonSchema:
    """A list of messages from some roles. `part`: what parts are in a dialect that has other ones."""
    listed: list[JsonSchema] = []
    for role in roles:
        parts = part or one_of(*(PART_SCHEMAS[kind] for kind in PARTS[role]))
        fields = {**FIELDS[role], "role": {"const": role}, "content": one_of(STRING, array(parts))}
        listed.append(objects(REQUIRED.get(role, ("role", "content")), **fields))
    return array(one_of(*listed), 1, MAX_MESSAGES)


def read_messages(given: Any, settings: Settings, *, azure: bool = False) -> tuple[Message, ...]:
    """The messages, as templates take them; raises RequestError, naming the place.

    azure: parts may have their text or image in `content`, images the type `image` (docs/decisions.md: Azure images).
    """
    if not isinstance(given, list):
        raise PayloadError.of("messages", given, "a list of messages")
    if not given:
        raise ParameterError.of("messages", given, "at least one message")
    check_number(given)
    last_function_call = ""
    messages: list[Message] = []
    for index, one in enumerate(given):
        place = f"messages[{index}]"
        if not isinstance(one, dict):
            raise PayloadError.of(place, one, "a message, an object")
        message: Message = one
        role = Text(tuple(FIELDS)).read(f"{place}.role", message.get("role"))
        for name, value in message.items():
            if value is not None and name not in FIELDS[role]:
                handle_unknown_field(name, FIELDS[role], settings, "messages[].")
        if role == "assistant" and message.get("function_call") is not None:
            last_function_call = f"call_function_{index}"
        messages.append(_read(message, role, place, last_function_call, settings, azure=azure))
    return tuple(messages)


def check_number(given: Any) -> None:
    """Raises ParameterError for more than MAX_MESSAGES messages, parts and calls: templates go through them one by
    one."""
    if not isinstance(given, list):
        return
    count = len(given)
    if count <= MAX_MESSAGES:
        for one in given:
            if isinstance(one, dict):
                count += sum(len(one[name]) for name in ("content", "tool_calls") if isinstance(one.get(name), list))
    if count > MAX_MESSAGES:
        raise ParameterError(
            f"messages: expected at most {MAX_MESSAGES}, parts and tool calls included, got {count}", "messages"
        )


def _read(
    message: Message, role: str, place: str, last_function_call: str, settings: Settings, *, azure: bool
) -> Message:
    read: Message = {"role": role}
    content = message.get("content")
    if content is None and role in ("tool", "function"):
        read["content"] = ""
    elif content is not None or role != "assistant":
        read["content"] = _content(content, role, f"{place}.content", settings, azure=azure)
    if message.get("name") is not None:
        read["name"] = Text().read(f"{place}.name", message["name"])
    if role == "assistant":
        return _assistant(read, message, place, last_function_call)
    if role == "tool":
        read["tool_call_id"] = read_filled(message.get("tool_call_id"), f"{place}.tool_call_id")
    elif role == "function":
        read_filled(message.get("name"), f"{place}.name")
        read |= {"role": "tool", "tool_call_id": last_function_call or "call_function"}
    return read


def _assistant(read: Message, message: Message, place: str, function_call_id: str) -> Message:
    """What an assistant's message has besides its content, which it may do without."""
    for name in ("reasoning_content", "reasoning"):
        if message.get(name) is not None:
            read[name] = Text().read(f"{place}.{name}", message[name])
    if message.get("refusal") is not None:
        refusal = Text().read(f"{place}.refusal", message["refusal"])
        read.setdefault("content", refusal)
    calls = message.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, list):
            raise PayloadError.of(f"{place}.tool_calls", calls, "a list of tool calls")
        read["tool_calls"] = [_call(call, f"{place}.tool_calls[{index}]") for index, call in enumerate(calls)]
    if not calls and message.get("function_call") is not None:
        function = _function(message["function_call"], f"{place}.function_call")
        read["tool_calls"] = [{"id": function_call_id, "type": "function", "function": function}]
    if not read.get("tool_calls"):
        # Templates that see a list of calls at all may write its frame; and without calls they want a content.
        read.pop("tool_calls", None)
        read.setdefault("content", "")
    return read


def _call(given: Any, place: str) -> Message:
    call = Object().read(place, given)
    kind = call.get("type", "function")
    if kind not in ("function", "custom"):
        raise _unsupported(f"{place}.type", kind, "'function' or 'custom'")
    function = (_function if kind == "function" else _custom)(call.get(kind), f"{place}.{kind}")
    return {"id": read_filled(call.get("id"), f"{place}.id"), "type": "function", "function": function}


def _function(given: Any, place: str) -> Message:
    function = Object().read(place, given)
    name = read_filled(function.get("name"), f"{place}.name")
    return {"name": name, "arguments": read_arguments(function.get("arguments"), f"{place}.arguments")}


def _custom(given: Any, place: str) -> Message:
    custom = Object().read(place, given)
    name = read_filled(custom.get("name"), f"{place}.name")
    return {"name": name, "arguments": arguments_of(Text().read(f"{place}.input", custom.get("input")))}


def read_arguments(given: Any, place: str) -> str:
    """The arguments of a call, a JSON object as text; none are an empty one. Raises PayloadError.

    Templates want an object, but models write other things, and are cut off: the client, which sends back what it got,
    cannot help it. Of vLLM's servers 0.23 refuses that, and every later turn with it, 0.32 forgets it; here it is a
    member of an object, so that the model sees what it wrote.
    """
    arguments = "" if given is None else Text().read(place, given)
    try:
        read = msgspec.json.decode(arguments) if arguments.strip() else None
    except (msgspec.DecodeError, RecursionError):
        return encode({RAW: arguments}).decode()
    if isinstance(read, dict):
        return arguments
    return "{}" if read is None else encode({RAW: arguments}).decode()


def _content(given: Any, role: str, place: str, settings: Settings, *, azure: bool) -> str | list[Message]:
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise PayloadError.of(place, given, "a string or a list of parts")
    return [_part(part, role, f"{place}[{index}]", settings, azure=azure) for index, part in enumerate(given)] or ""


def _part(given: Any, role: str, place: str, settings: Settings, *, azure: bool) -> Message:
    part = Object().read(place, given)
    kind = "image_url" if is_image_part(part) else Text().read(f"{place}.type", part.get("type"))
    if azure and kind == "image":
        kind = "image_url"
    if kind not in PARTS[role]:
        expected = " or ".join(map(repr, PARTS[role]))
        raise _unsupported(f"{place}.type", part.get("type") or kind, f"{expected} from the role {role!r}")
    for name, value in part.items():
        if value is not None and name not in PART_FIELDS and not (azure and name == "content"):
            handle_unknown_field(name, PART_FIELDS, settings, "messages[].content[].")
    own = kind
    if azure and part.get("content") is not None:
        if part.get(kind) is not None:
            raise ParameterError(f"{place}.content: cannot be combined with {kind}", f"{place}.content")
        own = "content"
    if kind != "image_url":
        return {"type": "text", "text": Text().read(f"{place}.{own}", part.get(own))}
    return read_image_part(part, place, azure=azure)


def read_filled(given: Any, place: str) -> str:
    """A string that is not empty; raises RequestError."""
    if not isinstance(given, str):
        raise PayloadError.of(place, given, "a non-empty string")
    if not given:
        raise ParameterError.of(place, given, "a non-empty string")
    return given


def _unsupported(place: str, given: object, expected: str) -> Exception:
    kind = UnsupportedError if isinstance(given, str) else PayloadError
    return kind.of(place, given, expected)
