"""The messages of a conversation as chat templates take them, in OpenAI's form: the one place that makes it.

    Message("assistant", "Let me see.", calls=(Call("call_1", "look", "{}"),))
        --template_messages--> {"role": "assistant", "content": "Let me see.", "tool_calls": [{"id": "call_1", ...}]}

What templates cannot bear is brought into a form that they can:

    media in results       follow the results, in a message of the user's, where the template writes a result as text
    results                come in the order of their calls: some templates go by it, and answers are cached by prefixes
    reasoning              has both names that templates know
    white space            between a text and calls is left out: the template has its own, and the model wrote no other
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ..conversation import Call, Media, MediaKind, Message, Part

__all__ = ["KINDS", "media_in", "template_messages"]

TemplateMessage = dict[str, Any]


class _Numbers:
    """Numbers media in the order of the conversation, whatever the order in which templates get them."""

    def __init__(self, *, urls: bool) -> None:
        self.count = 0
        self._urls = urls

    def part(self, part: Part) -> TemplateMessage:
        if isinstance(part, Media):
            self.count += 1
            url = part.url if self._urls else str(self.count - 1)
            if part.kind == "image_embeds":
                return {"type": part.kind, part.kind: url}
            name = f"{part.kind}_url"
            return {"type": name, name: {"url": url}}
        return {"type": "text", "text": part.text}


def template_messages(
    messages: Iterable[Message | TemplateMessage],
    *,
    urls: bool = True,
    media_in_results: bool = False,
    join: bool = True,
) -> list[TemplateMessage]:
    """The messages for a template; those that are in OpenAI's form stay as they are.

    urls: whether media have their URLs, which may be megabytes long; else each has its number, from 0 on.
    media_in_results: whether the template shows them there.
    join: whether the texts of a result become one, a line each; templates take no others.
    """
    numbers = _Numbers(urls=urls)
    made: list[TemplateMessage] = []
    calls: Sequence[Call] = ()
    """Of the assistant's last messages in a row."""
    answer: TemplateMessage = {}
    results: list[tuple[Message, TemplateMessage, list[TemplateMessage]]] = []
    for message in messages:
        if isinstance(message, Message) and message.role == "tool":
            results.append((message, *_result(message, numbers, media_in_results, join)))
            continue
        if results:
            media = _take_results(made, results, calls)
            results = []
        else:
            media = []
        if isinstance(message, dict):
            made += _user(media)
            made.append(_numbered(message, numbers))
            continue
        content = message.content if isinstance(message.content, str) else [*map(numbers.part, message.content)]
        if media and message.role == "user":
            content = [*media, *([{"type": "text", "text": content}] if isinstance(content, str) else content)]
        else:
            made += _user(media)
        if message.role != "assistant" or made[-1:] != [answer]:
            calls = ()
        calls = (*calls, *message.calls)
        answer = _said(message, content)
        made.append(answer)
    made += _user(_take_results(made, results, calls))
    return made


def _said(message: Message, content: str | list[TemplateMessage]) -> TemplateMessage:
    said: TemplateMessage = {"role": message.role, "content": content}
    if message.reasoning:
        said["reasoning"] = said["reasoning_content"] = message.reasoning
    if message.calls:
        # Without a text templates write no line break before the calls; an empty part would be one for some.
        said["content"] = _before_calls(content) or None
        said["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
    if message.name:
        said["name"] = message.name
    return said


def _before_calls(content: str | list[TemplateMessage]) -> str | list[TemplateMessage]:
    """A content without the white space at its end: templates write a line break of their own before calls."""
    if isinstance(content, str):
        return content.rstrip()
    if not content or content[-1]["type"] != "text":
        return content
    *others, last = content
    text = last["text"].rstrip()
    return [*others, {**last, "text": text}] if text else others


def _result(
    message: Message, numbers: _Numbers, media_in_results: bool, join: bool
) -> tuple[TemplateMessage, list[TemplateMessage]]:
    """A result, and those of its media that are to follow it."""
    media: list[TemplateMessage] = []
    content: str | list[TemplateMessage]
    if isinstance(message.content, str):
        content = message.content
    else:
        content = [*map(numbers.part, message.content)]
        media = [part for part in content if part["type"] != "text"]
        if media and media_in_results:
            media = []
        else:
            texts = [part for part in content if part["type"] == "text"]
            content = "\n".join(part["text"] for part in texts) if join or not texts else texts
    made: TemplateMessage = {"role": "tool", "tool_call_id": message.call_id, "content": content}
    if message.name:
        made["name"] = message.name
    return made, media


def _take_results(
    made: list[TemplateMessage],
    results: list[tuple[Message, TemplateMessage, list[TemplateMessage]]],
    calls: Sequence[Call],
) -> list[TemplateMessage]:
    """Adds results in the order of their calls, those of no call in their own places; returns their media."""
    places = {call.id: place for place, call in reversed([*enumerate(calls)])}
    known = iter(sorted((one for one in results if one[0].call_id in places), key=lambda one: places[one[0].call_id]))
    ordered = [next(known) if one[0].call_id in places else one for one in results]
    made += [result for _, result, _ in ordered]
    return [part for _, _, media in ordered for part in media]


def _user(media: list[TemplateMessage]) -> Iterator[TemplateMessage]:
    if media:
        yield {"role": "user", "content": media}


def _numbered(message: TemplateMessage, numbers: _Numbers) -> TemplateMessage:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [_numbered_part(part, numbers) for part in content]}


def _numbered_part(part: TemplateMessage, numbers: _Numbers) -> TemplateMessage:
    media = _media(part)
    return part if media is None else numbers.part(media)


def _media(part: TemplateMessage) -> Media | None:
    """What a part of OpenAI's form is, or vLLM's; None: text, or what no template is asked to show."""
    kind = KINDS.get(part.get("type", ""))
    if kind == "image_embeds":
        given = part[kind]
        return Media(kind, given if isinstance(given, str) else msgspec.json.encode(given).decode())
    return None if kind is None else Media(kind, part[f"{kind}_url"]["url"])


KINDS: Mapping[str, MediaKind] = {
    "image_url": "image",
    "audio_url": "audio",
    "video_url": "video",
    "image_embeds": "image_embeds",
}
"""By the types of their parts."""


def media_in(message: Message | TemplateMessage) -> Iterator[tuple[int, Media]]:
    """The media of a message, each with its place in the content."""
    if isinstance(message, Message):
        if not isinstance(message.content, str):
            yield from ((index, part) for index, part in enumerate(message.content) if isinstance(part, Media))
    elif isinstance(content := message.get("content"), list):
        yield from ((index, media) for index, part in enumerate(content) if (media := _media(part)) is not None)
