"""What a conversation is made of: messages with typed parts, the calls of tools in them, and the calls' results.

    Message(role, content, reasoning, calls, call_id)      content: a text, or parts (Text, Media)

Dialects make it (formatters/conversation/), text/template_messages.py makes of it what chat templates take. It travels
to the engine's process as msgpack, hence msgspec's structs, and array-like, as there may be thousands.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .former_fields import FormerMessage

__all__ = ["Call", "Media", "MediaKind", "Message", "Part", "Text"]


class Text(msgspec.Struct, array_like=True, frozen=True, tag="text", gc=False):
    """A part of a content that is text."""

    text: str


MediaKind = Literal["image", "audio", "video", "image_embeds"]
"""image_embeds: what the model's own encoder would have made of an image."""


class Media(msgspec.Struct, array_like=True, frozen=True, tag="media", gc=False):
    """A part of a content that is no text."""

    kind: MediaKind
    url: str
    """A data URL, or one that the engine's side fetches where the options allow it. Of image_embeds a tensor in base64
    (a file of torch.save or of numpy.save), or a JSON object of such, as text."""


Part = Text | Media


class Call(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A call of a tool that the assistant made."""

    id: str
    name: str
    arguments: str
    """A JSON object as text."""


class Message(FormerMessage, msgspec.Struct, array_like=True, frozen=True):
    """What somebody said, or the result of a call."""

    role: str
    """system, developer, user, assistant, tool for a result, or another one that the model's template knows."""
    content: str | tuple[Part, ...] = ""
    reasoning: str = ""
    """What the assistant thought before it said the content."""
    calls: tuple[Call, ...] = ()
    """What the assistant called after it."""
    call_id: str = ""
    """Of a result: the id of its call."""
    name: str = ""
    """The speaker's, where several have one role."""
