"""Anthropic's messages and content blocks as the messages of a conversation, in OpenAI's form.

    system, messages --read_conversation--> ({"role": "system" or "user" or "assistant" or "tool", ...}, ...)

Messages of one role in a row are one turn, as at Anthropic. Of a user's turn the results of tools come first, each a
message of its own; images in a result go to the user's message, since templates know none in a tool's. A `system`
message within `messages` is added to the system prompt, where every template can have it (as vLLM's server does).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...model.errors import ParameterError, PayloadError, UnsupportedError
from ...model.options import Settings
from ..base import Payload, encode
from ..common.fields import handle_unknown_field
from ..common.images import read_url
from ..common.kinds import Boolean, Object, Text, Tree
from ..openai.messages import check_number, read_arguments

__all__ = ["BLOCK_FIELDS", "CALL_PREFIX", "MEDIA_TYPES", "MESSAGE_FIELDS", "ROLES", "read_conversation"]

Message = dict[str, Any]

ROLES = ("user", "assistant", "system")
MESSAGE_FIELDS = ("role", "content")
MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
CALL_PREFIX = "toolu_"
"""What a tool call's id is given for the client, and freed of when it comes back."""
BILLING = "x-anthropic-billing-header"
"""How a block of Claude Code's begins that differs in every request: the prefix cache would never hit."""

BLOCK_FIELDS: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "citations"),
    "image": ("source", "transformations"),
    "document": ("source", "title", "context", "citations"),
    "search_result": ("content", "source", "title", "citations"),
    "tool_reference": ("tool_name",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "tool_use": ("id", "name", "input", "caller", "toolset_name"),
    "tool_result": ("tool_use_id", "content", "is_error", "toolset_name"),
}
"""By type, the fields beside `type` and `cache_control`."""


@dataclass(slots=True)
class _Turn:
    """Messages of one role in a row."""

    role: str
    parts: list[Message] = field(default_factory=list[Message])
    reasoning: list[str] = field(default_factory=list[str])
    calls: list[Message] = field(default_factory=list[Message])
    results: list[Message] = field(default_factory=list[Message])

    def text(self, text: str) -> None:
        """Adds a text; templates would write the frame of an empty one."""
        if text:
            self.parts.append({"type": "text", "text": text})

    @property
    def empty(self) -> bool:
        """Whether it is the assistant's and says nothing; as the last one it is no beginning of the answer."""
        return self.role == "assistant" and not (self.parts or self.reasoning or self.calls)

    def messages(self) -> Iterator[Message]:
        """It in OpenAI's form."""
        yield from self.results
        if self.results and not self.parts:
            return
        message: Message = {"role": self.role, "content": _content(self.parts)}
        if self.reasoning:
            # Templates know it by either name.
            message["reasoning"] = message["reasoning_content"] = "".join(self.reasoning)
        if self.calls:
            message["tool_calls"] = self.calls
        yield message


def _content(parts: list[Message]) -> str | list[Message]:
    if not parts:
        return ""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def read_conversation(payload: Payload, settings: Settings) -> tuple[tuple[Message, ...], bool]:
    """The messages, and whether the answer is to go on with the last one; raises RequestError, naming the place."""
    given = payload.get("messages")
    if not isinstance(given, list):
        raise PayloadError.of("messages", given, "a list of messages")
    if not given:
        raise ParameterError.of("messages", given, "at least one message")
    check_number(given)
    system = _system(payload["system"], "system", settings) if payload.get("system") is not None else []
    turns: list[_Turn] = []
    for index, one in enumerate(given):
        place = f"messages[{index}]"
        message = Object().read(place, one)
        role = Text(ROLES).read(f"{place}.role", message.get("role"))
        for name, value in message.items():
            if value is not None and name not in MESSAGE_FIELDS:
                handle_unknown_field(name, MESSAGE_FIELDS, settings, "messages[].")
        if role == "system":
            system += _system(message.get("content"), f"{place}.content", settings)
            continue
        if not turns or turns[-1].role != role:
            turns.append(_Turn(role))
        _read_content(message.get("content"), turns[-1], f"{place}.content", settings)
    if turns and turns[-1].empty:
        turns.pop()
    if not turns:
        raise ParameterError("messages: expected at least one message from the role user", "messages")
    continues = _continues(turns[-1], f"messages[{len(given) - 1}].content")
    opening: list[Message] = [{"role": "system", "content": "\n".join(system)}] if system else []
    return (*opening, *(message for turn in turns for message in turn.messages())), continues


def _continues(last: _Turn, place: str) -> bool:
    """Whether the last turn is the beginning of the answer."""
    if last.role != "assistant":
        return False
    if last.calls:
        raise ParameterError(f"{place}: expected tool_result blocks after the last tool_use blocks", place)
    if not last.parts:
        raise ParameterError(f"{place}: expected a text that the answer goes on with", place)
    return True


def _system(given: Any, place: str, settings: Settings) -> list[str]:
    """The texts of a system prompt."""
    if isinstance(given, str):
        return [given] if given else []
    turn = _Turn("system")
    _read_content(given, turn, place, settings)
    return [text for part in turn.parts if not (text := part["text"]).startswith(BILLING)]


def _read_content(given: Any, turn: _Turn, place: str, settings: Settings) -> None:
    if isinstance(given, str):
        turn.text(given)
        return
    if given is None and turn.role == "assistant":
        return
    readers = READERS[turn.role]
    for kind, block, where in _blocks(given, tuple(readers), turn.role, place, settings):
        readers[kind](block, turn, where, settings)


def _blocks(
    given: Any, kinds: tuple[str, ...], role: str, place: str, settings: Settings
) -> Iterator[tuple[str, Message, str]]:
    """The type of each block, the block, and its place."""
    if not isinstance(given, list):
        raise PayloadError.of(place, given, "a string or a list of content blocks")
    for index, one in enumerate(given):
        where = f"{place}[{index}]"
        block = Object().read(where, one)
        kind = Text().read(f"{where}.type", block.get("type"))
        if kind not in kinds:
            expected = " or ".join(map(repr, kinds))
            raise UnsupportedError.of(f"{where}.type", kind, f"{expected} from the role {role!r}")
        known = ("type", "cache_control", *BLOCK_FIELDS[kind])
        for name, value in block.items():
            if value is not None and name not in known:
                handle_unknown_field(name, known, settings, "messages[].content[].")
        yield kind, block, where


def _text(block: Message, turn: _Turn, place: str, settings: Settings) -> None:
    turn.text(Text().read(f"{place}.text", block.get("text")))


def _image(block: Message, turn: _Turn, place: str, settings: Settings) -> None:
    source = Object().read(f"{place}.source", block.get("source"))
    kind = Text().read(f"{place}.source.type", source.get("type"))
    if kind == "base64":
        media = Text(MEDIA_TYPES).read(f"{place}.source.media_type", source.get("media_type"))
        name = f"{place}.source.data"
        url = f"data:{media};base64,{Text().read(name, source.get('data'))}"
    elif kind == "url":
        name = f"{place}.source.url"
        url = read_url(source.get("url"), name)
    else:
        raise UnsupportedError.of(f"{place}.source.type", kind, "'base64' or 'url'")
    turn.parts.append({"type": "image_url", "image_url": {"url": url}, "field": name})


def _document(block: Message, turn: _Turn, place: str, settings: Settings) -> None:
    """A document is its title, its context and its text, a line each; what is no text no template can show."""
    heading = [Text().read(f"{place}.{name}", block[name]) for name in ("title", "context") if block.get(name)]
    source = Object().read(f"{place}.source", block.get("source"))
    kind = Text().read(f"{place}.source.type", source.get("type"))
    inner = _Turn("document")
    if kind == "text":
        inner.text(Text().read(f"{place}.source.data", source.get("data")))
    elif kind == "content":
        _read_content(source.get("content"), inner, f"{place}.source.content", settings)
    else:
        raise UnsupportedError.of(f"{place}.source.type", kind, "'text' or 'content'")
    _add_lines(turn, heading, inner.parts)


def _search_result(block: Message, turn: _Turn, place: str, settings: Settings) -> None:
    heading = [Text().read(f"{place}.{name}", block.get(name)) for name in ("title", "source")]
    inner = _Turn("search_result")
    _read_content(block.get("content"), inner, f"{place}.content", settings)
    _add_lines(turn, heading, inner.parts)


def _add_lines(turn: _Turn, lines: list[str], parts: list[Message]) -> None:
    """Adds lines and then parts, texts in a row as one: they are one document's."""
    for part in parts:
        if part["type"] == "text":
            lines.append(part["text"])
            continue
        turn.text("\n".join(lines))
        turn.parts.append(part)
        lines = []
    turn.text("\n".join(lines))


def _tool_reference(block: Message, turn: _Turn, place: str, settings: Settings) -> None:
    """A tool that a search has found; here all tools are in the prompt from its beginning."""
    turn.text(_filled(block.get("tool_name"), f"{place}.tool_name"))


def _thinking(block: Message, turn: _Turn, place: str, settings: Settings) -> None:
    turn.reasoning.append(Text().read(f"{place}.thinking", block.get("thinking")))


def _redacted(block: Message, turn: _Turn, place: str, settings: Settings) -> None:
    """It is for Anthropic's models only."""


def _tool_use(block: Message, turn: _Turn, place: str, settings: Settings) -> None:
    called = block.get("input")
    if called is None or isinstance(called, str):
        # What a client could not read, as it came.
        arguments = read_arguments(called, f"{place}.input")
    else:
        arguments = encode(Tree().read(f"{place}.input", called)).decode()
    function = {"name": _filled(block.get("name"), f"{place}.name"), "arguments": arguments}
    call_id = _filled(block.get("id"), f"{place}.id").removeprefix(CALL_PREFIX) or CALL_PREFIX
    turn.calls.append({"id": call_id, "type": "function", "function": function})


def _tool_result(block: Message, turn: _Turn, place: str, settings: Settings) -> None:
    call_id = _filled(block.get("tool_use_id"), f"{place}.tool_use_id").removeprefix(CALL_PREFIX) or CALL_PREFIX
    result = _Turn("tool")
    content = block.get("content")
    if content is not None and content != []:
        _read_content(content, result, f"{place}.content", settings)
    text = "\n".join(part["text"] for part in result.parts if part["type"] == "text")
    if block.get("is_error") is not None and Boolean().read(f"{place}.is_error", block["is_error"]):
        # Templates have no other place for it.
        text = f"Error: {text}" if text else "Error"
    turn.results.append({"role": "tool", "tool_call_id": call_id, "content": text})
    turn.parts += [part for part in result.parts if part["type"] != "text"]


def _filled(given: Any, place: str) -> str:
    text = Text().read(place, given)
    if not text:
        raise ParameterError.of(place, given, "a non-empty string")
    return text


READERS: Mapping[str, Mapping[str, Callable[[Message, _Turn, str, Settings], None]]] = {
    "user": {
        "text": _text,
        "image": _image,
        "document": _document,
        "search_result": _search_result,
        "tool_result": _tool_result,
    },
    "assistant": {"text": _text, "thinking": _thinking, "redacted_thinking": _redacted, "tool_use": _tool_use},
    "system": {"text": _text},
    "tool": {
        "text": _text,
        "image": _image,
        "document": _document,
        "search_result": _search_result,
        "tool_reference": _tool_reference,
    },
    "document": {"text": _text, "image": _image},
    "search_result": {"text": _text},
}
"""By role, what reads a block of each type that its content may have. The last three are what has a content of its own:
a tool's result, a document, what a search has found."""
