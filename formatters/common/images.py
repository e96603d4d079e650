"""Parts of a message's content that are images, for every dialect that has messages.

    OpenAI   {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}, or "image_url": URL
    Azure    {"type": "image_url" or "image", "content": URL or base64, "detail": "low"}
             (docs/decisions.md: Azure images)

Both become {"type": "image_url", "image_url": {"url", "detail"}}, with "field" where the client's name for the URL is
another than `image_url.url`, until `take_places` takes it out. Whether the model takes images and the URL may be
fetched, the engine's side judges.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from typing import Any

from ...model.errors import ParameterError, PayloadError
from .kinds import Object, Text

__all__ = ["DETAILS", "is_image_part", "read_image_part", "read_url", "take_places"]

DETAILS = ("auto", "low", "high", "original")
"""Accepted everywhere; vLLM's models take every image as it is."""
SCHEMES = ("data:", "http://", "https://", "file://")
BASE64_KINDS: Mapping[bytes, str] = {
    rb"\x89PNG": "image/png",
    rb"\xff\xd8\xff": "image/jpeg",
    rb"GIF8": "image/gif",
    rb"RIFF....WEBP": "image/webp",
}
"""Types of images by what their first bytes match."""


def is_image_part(part: Mapping[str, Any]) -> bool:
    """Whether a part without a type is an image by its fields, as vLLM reads it."""
    return part.get("type") is None and part.get("image_url") is not None


def read_image_part(part: Mapping[str, Any], place: str, *, azure: bool = False) -> dict[str, Any]:
    """The part in the form that engines take; the part's type has been judged already.

    place: the part, as messages[0].content[1], for errors. azure: `content` is read too, and may be bare base64.
    Raises PayloadError and ParameterError.
    """
    given, field = part.get("image_url"), f"{place}.image_url"
    details = [(part.get("detail"), f"{place}.detail")]
    if given is None and azure:
        # The document's own form.
        given, field = part.get("content"), f"{place}.content"
    elif not isinstance(given, str):
        image = Object().read(field, given)
        details.append((image.get("detail"), f"{field}.detail"))
        given, field = image.get("url"), f"{field}.url"
    read: dict[str, Any] = {}
    for detail, name in details:
        if detail is not None:
            read["detail"] = Text(DETAILS).read(name, detail)
    read["url"] = read_url(given, field, base64=azure)
    made: dict[str, Any] = {"type": "image_url", "image_url": read}
    return made if field.endswith(".image_url.url") else {**made, "field": field}


def take_places(messages: Iterable[dict[str, Any]]) -> tuple[tuple[dict[str, Any], ...], dict[str, str]]:
    """The messages of a conversation without the "field" of their images, which are given by their paths: of each such
    part, and of its URL, what the client calls it (client_fields.py).
    """
    taken: list[dict[str, Any]] = []
    fields: dict[str, str] = {}
    for number, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, list) and any("field" in part for part in content):
            parts: list[dict[str, Any]] = []
            for index, part in enumerate(content):
                if (name := part.get("field")) is not None:
                    path = f"prompt.messages[{number}].content[{index}]"
                    # The client may have the part in another place, too.
                    fields |= {path: name[: name.rindex("]") + 1], f"{path}.url": name}
                    part = {key: value for key, value in part.items() if key != "field"}
                parts.append(part)
            message = {**message, "content": parts}
        taken.append(message)
    return tuple(taken), fields


def read_url(given: Any, field: str, *, base64: bool = False) -> str:
    """An image's URL; with `base64` it may be bare base64. Raises PayloadError and ParameterError."""
    expected = "a URL of an image: data:image/...;base64,..., https://... or http://..."
    if not isinstance(given, str):
        raise PayloadError.of(field, given, expected)
    url = given.strip()
    if url[:8].lower().startswith(SCHEMES):
        return url
    if base64:
        expected += ", or a PNG, JPEG, GIF or WebP image in base64"
        packed = "".join(url.split())
        try:
            # Enough to know its type. The rest of it is read by the engine's side.
            start = b64decode(packed[:64], validate=True)
        except (binascii.Error, ValueError):
            start = b""
        for mark, kind in BASE64_KINDS.items():
            if re.match(mark, start, re.DOTALL):
                return f"data:{kind};base64,{packed}"
    raise ParameterError.of(field, given[:200], expected)
