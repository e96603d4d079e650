"""Anthropic's messages and content blocks, and what the builder makes of them.

    system, messages --read_conversation--> Builder

Messages of one role in a row are one turn, as at Anthropic. Of a user's turn the results of tools come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.conversation import Text as TextPart
from ...model.errors import Fault, ParameterError
from ...model.options import Settings
from ..common.forms import Form, Listed, Tagged
from ..common.kinds import Boolean, Filled, Text
from ..conversation.builder import NONE, Arguments, Builder
from ..conversation.content import MAX_MESSAGES, Content, Contents, PartForm, content_of
from ..conversation.media import read_url
from .found import FoundTools
from .said import ADDED, REFERENCE, REMOVED, Blocks, Change
from .tools import TOOL

__all__ = ["CALL_PREFIX", "MESSAGES", "SYSTEM", "read_conversation"]

MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
CALL_PREFIX = "toolu_"
"""What a tool call's id is given for the client, and freed of when it comes back."""
BILLING = "x-anthropic-billing-header"
"""How a block of Claude Code's begins that differs in every request: the prefix cache would never hit."""


Read = dict[str, Any]


def _text(read: Read, content: Content, place: str, settings: Settings) -> None:
    content.text(read["text"])


def _image(read: Read, content: Content, place: str, settings: Settings) -> None:
    kind, source = read["source"]
    if kind == "base64":
        content.media("image", f"data:{source['media_type']};base64,{source['data']}", f"{place}.source.data")
    else:
        name = f"{place}.source.url"
        content.media("image", read_url(source["url"], name), name)


def _document(read: Read, content: Content, place: str, settings: Settings) -> None:
    """A document is its title, its context and its text, a line each."""
    kind, source = read["source"]
    inner = source["content"] if kind == "content" else source["data"]
    _add_lines(content, [read[name] for name in ("title", "context") if read.get(name)], inner)


def _search_result(read: Read, content: Content, place: str, settings: Settings) -> None:
    _add_lines(content, [read["title"], read["source"]], read["content"])


def _add_lines(content: Content, lines: list[str], said: str | Content) -> None:
    """Adds lines and then what is said, texts in a row as one: they are one document's."""
    inner = content_of(said)
    for index, part in enumerate(inner.parts):
        if isinstance(part, TextPart):
            lines.append(part.text)
            continue
        content.text("\n".join(lines))
        content.media(part.kind, part.url, inner.fields[index])
        lines = []
    content.text("\n".join(lines))


def _tool_reference(read: Read, content: Blocks, place: str, settings: Settings) -> None:
    """A tool that a search has found."""
    content.change(Change(REFERENCE, read["tool_name"], f"{place}.tool_name"))


def _changing(kind: str) -> Any:
    """What adds a system message's change of the tools."""

    def add(read: Read, content: Blocks, place: str, settings: Settings) -> None:
        _, tool = read["tool"]
        inner = "definition" if "definition" in tool else "name"
        content.change(Change(kind, tool.get("name", ""), f"{place}.tool.{inner}", tool.get("definition")))

    return add


def _thinking(read: Read, content: Blocks, place: str, settings: Settings) -> None:
    """Reasoning that was not shown (`display: "omitted"`) is in its signature."""
    content.reasoning.append((read["thinking"], read.get("signature", "")))


def _redacted(read: Read, content: Content, place: str, settings: Settings) -> None:
    """It is for Anthropic's models only."""


def _tool_use(read: Read, content: Blocks, place: str, settings: Settings) -> None:
    content.calls.append((_engines_id(read["id"]), read["name"], read.get("input", NONE)))


def _tool_result(read: Read, content: Blocks, place: str, settings: Settings) -> None:
    result = (_engines_id(read["tool_use_id"]), read.get("content", ""), read.get("is_error", False))
    content.results.append(result)


def _engines_id(given: str) -> str:
    return given.removeprefix(CALL_PREFIX) or CALL_PREFIX


def _contents(where: str, **forms: PartForm) -> Contents:
    return Contents(forms, f"from the role {where!r}", noun="content blocks", make=Blocks)


def _block(add: Any, required: tuple[str, ...], fields: Mapping[str, Any], *harmless: str) -> PartForm:
    return PartForm({**fields, **dict.fromkeys(("cache_control", *harmless))}, required, add=add)


TEXT = _block(_text, ("text",), {"text": Text()}, "citations")
SOURCE = Tagged(
    "type",
    {
        "base64": Form({"media_type": Text(MEDIA_TYPES), "data": Text()}, ("media_type", "data")),
        "url": Form({"url": Text()}, ("url",)),
    },
)
IMAGE = _block(_image, ("source",), {"source": SOURCE}, "transformations")
DOCUMENT_SOURCE = Tagged(
    "type",
    {
        "text": Form({"data": Text(), "media_type": None}, ("data",)),
        "content": Form({"content": _contents("document", text=TEXT, image=IMAGE)}, ("content",)),
    },
)
DOCUMENT = _block(_document, ("source",), {"source": DOCUMENT_SOURCE, "title": Text(), "context": Text()}, "citations")
FOUND = _block(
    _search_result,
    ("title", "source", "content"),
    {"title": Text(), "source": Text(), "content": _contents("search_result", text=TEXT)},
    "citations",
)
REFERRED = _block(_tool_reference, ("tool_name",), {"tool_name": Filled()})
RESULT = _block(
    _tool_result,
    ("tool_use_id",),
    {
        "tool_use_id": Filled(),
        "content": _contents(
            "tool", text=TEXT, image=IMAGE, document=DOCUMENT, search_result=FOUND, tool_reference=REFERRED
        ),
        "is_error": Boolean(),
    },
    "toolset_name",
)
THINKING = _block(_thinking, ("thinking",), {"thinking": Text(), "signature": Text()})
REDACTED = _block(_redacted, (), {}, "data")
CALL = _block(
    _tool_use, ("id", "name"), {"id": Filled(), "name": Filled(), "input": Arguments()}, "caller", "toolset_name"
)

SYSTEM = _contents("system", text=TEXT)
NAMED = {REFERENCE: Form({"name": Filled()}, ("name",))}
DEFINED = {"tool_definition": Form({"definition": TOOL}, ("definition",))}
CHANGING = _contents(
    "system",
    text=TEXT,
    tool_addition=_block(_changing(ADDED), ("tool",), {"tool": Tagged("type", NAMED | DEFINED)}),
    tool_removal=_block(_changing(REMOVED), ("tool",), {"tool": Tagged("type", NAMED)}),
)
CLEARED = "next_user_message"
"""When a system message is no longer shown: it was for one turn, which is over."""


class SystemForm(Form):
    """A system message, which needs no content where it has an `output_config`."""

    def read(self, name: str, given: Any, settings: Settings, tag: str = "") -> Read:
        read = Form.read(self, name, given, settings, tag)
        if "content" not in read and not given.get("output_config"):
            CHANGING.read(f"{name}.content", None, settings)
        return read


MESSAGE = Tagged(
    "role",
    {
        "user": Form(
            {
                "content": _contents(
                    "user", text=TEXT, image=IMAGE, document=DOCUMENT, search_result=FOUND, tool_result=RESULT
                )
            },
            ("content",),
        ),
        "assistant": Form(
            {"content": _contents("assistant", text=TEXT, thinking=THINKING, redacted_thinking=REDACTED, tool_use=CALL)}
        ),
        "system": SystemForm({"content": CHANGING, "clear_at": Text((CLEARED, "never")), "output_config": None}),
    },
)
MESSAGES = Listed(MESSAGE, 1, MAX_MESSAGES, "messages")


def read_conversation(
    messages: list[tuple[str, Read]], system: str | Content | None, found: FoundTools, settings: Settings
) -> tuple[Builder, bool]:
    """What was said, as MESSAGES and SYSTEM have read it, and whether the answer is to go on with the last message;
    raises RequestError.

    found: the tools; what becomes of them in the conversation is told to it.
    """
    builder = Builder()
    if system is not None:
        _say_system(builder, system)
    last = ""
    said: str | Blocks = ""
    last_user = max((index for index, (role, _) in enumerate(messages) if role == "user"), default=0)
    for index, (role, read) in enumerate(messages):
        content = read.get("content", "")
        if role == "system" and (not _lines(content) or (index < last_user and read.get("clear_at") == CLEARED)):
            # A turn goes on behind it.
            continue
        if role == last:
            said = _joined(said, content)
            continue
        _say(builder, last, said, found, settings)
        last, said = role, content
    continues = last == "assistant" and bool(
        said if isinstance(said, str) else said.parts or said.reasoning or said.calls
    )
    if continues:
        _check_beginning(said, f"messages[{len(messages) - 1}].content")
    if last != "assistant" or continues:
        _say(builder, last, said, found, settings)
    if not any(message.role != "system" for message in builder.messages()):
        raise ParameterError.because(Fault("messages", expected="at least one message from the role user"))
    return builder, continues


def _joined(said: str | Blocks, more: str | Blocks) -> Blocks:
    """What a further message of the same role adds, in the first one's own blocks where it has any."""
    if isinstance(said, str):
        text, said = said, Blocks()
        said.extend(text)
    said.extend(more)
    return said


def _say(builder: Builder, role: str, said: str | Blocks, found: FoundTools, settings: Settings) -> None:
    if role == "system":
        _say_system(builder, found.told(said, settings))
    elif role == "assistant":
        turn = builder.answer()
        turn.say(said)
        if isinstance(said, Blocks):
            turn.reasoning += [text or builder.uncarried(signature) for text, signature in said.reasoning]
            for call in said.calls:
                turn.call(*call)
    elif role == "user":
        results = said.results if isinstance(said, Blocks) else []
        for call_id, content, failed in results:
            builder.result(call_id, found.told(content, settings), failed=failed)
        if not results or (isinstance(said, Blocks) and said.parts):
            builder.say(role, said)


def _say_system(builder: Builder, said: str | Content) -> None:
    """A system prompt, as one text: its blocks are a line each."""
    if lines := _lines(said):
        builder.say("system", "\n".join(lines))


def _lines(said: str | Content) -> list[str]:
    texts = [said] if isinstance(said, str) else [part.text for part in said.parts if isinstance(part, TextPart)]
    return [text for text in texts if text and not text.startswith(BILLING)]


def _check_beginning(last: str | Blocks, place: str) -> None:
    """Raises ParameterError where the answer cannot go on with the last message."""
    if isinstance(last, str):
        return
    if last.calls:
        raise ParameterError.because(Fault(place, expected="tool_result blocks after the last tool_use blocks"))
    if not last.parts:
        raise ParameterError.because(Fault(place, expected="a text that the answer goes on with"))
