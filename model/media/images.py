"""The images of a conversation before the engine sees them: where they stand, how large they are, of what kind.

    Conversation --image_parts--> parts --data URL, or Fetcher--> bytes --check_image--> bytes that may be decoded

A picture of a few kilobytes can ask for gigabytes when it is decoded, so its size is read from its header first.
"""

from __future__ import annotations

import base64
import binascii
import threading
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from msgspec.structs import replace

from ..conversation import Message, Text
from ..errors import Fault, ParameterError
from ..generation import Conversation
from ..text.template_messages import image_urls
from .url_policy import MediaError

__all__ = [
    "Budget", "Image", "ImagePart", "check_image", "data_url_bytes", "image_parts", "is_data_url",
    "without_images",
]  # fmt: skip

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
"""What is decoded, by Pillow's names: what browsers make. Pillow's other readers are many, and rarely reviewed."""
PIECE = 1 << 20
"""Characters of base64 that are decoded at once; a multiple of 4."""


@dataclass(frozen=True, slots=True)
class ImagePart:
    """One image of a conversation, as the request names it."""

    url: str
    place: str
    """The part's path, as prompt.messages[0].content[1]."""
    field: str
    """The URL's path, for errors about it."""


@dataclass(frozen=True, slots=True)
class Image:
    """One image, not yet decoded."""

    data: bytes
    field: str
    """Its path in a Generation, for errors about it."""


class Budget:
    """How much all images of a prompt may have together; several threads may take from it."""

    def __init__(self, limit: int, what: str, option: str) -> None:
        self._limit = limit
        self._left = limit
        self._message = f"expected images of at most {limit} {what} together (option.{option})"
        self._lock = threading.Lock()

    def take(self, amount: int) -> None:
        """Raises MediaError where it is more than is left."""
        with self._lock:
            self._left -= amount
            if self._left < 0:
                raise MediaError(f"{self._message}, got {self._limit - self._left} or more")


def image_parts(conversation: Conversation) -> list[ImagePart]:
    """The images, in their order."""
    return [
        _part(url, f"prompt.messages[{number}].content[{index}]")
        for number, message in enumerate(conversation.messages)
        for index, url in image_urls(message)
    ]


def without_images(conversation: Conversation) -> Conversation:
    """The conversation with a text in the place of each image, for a model that reads text alone."""
    return replace(conversation, messages=tuple(map(_told, conversation.messages)))


def _told(message: Message | dict[str, Any]) -> Message | dict[str, Any]:
    if isinstance(message, dict):
        content = message.get("content")
        if not isinstance(content, list):
            return message
        told = {"type": "text", "text": LEFT_OUT}
        return {**message, "content": [told if part.get("type") == "image_url" else part for part in content]}
    if isinstance(message.content, str):
        return message
    return replace(
        message, content=tuple(Text(LEFT_OUT) if not isinstance(part, Text) else part for part in message.content)
    )


LEFT_OUT = "[An image was left out: this model reads text alone.]"


def _part(url: str, place: str) -> ImagePart:
    return ImagePart(url, place, f"{place}.url")


def is_data_url(url: str) -> bool:
    """Whether the image is in the URL itself."""
    return url[:5].lower() == "data:"


def data_url_bytes(url: str, budget: Budget) -> bytes:
    """What a data URL holds (RFC 2397, base64 only); raises MediaError."""
    comma = url.find(",")
    kind, *parameters = url[5:comma].lower().split(";")
    if comma < 0 or not parameters or parameters[-1].strip() != "base64":
        raise MediaError("expected a data URL as data:image/png;base64,...")
    if not kind.strip().startswith("image/"):
        raise MediaError(f"expected a data URL of an image, as data:image/png;base64,..., got {kind[:60]!r}")
    start, end = comma + 1, len(url)
    budget.take((end - start) // 4 * 3 - url.count("=", max(start, end - 2)))
    refused = MediaError("expected base64 after the comma of the data URL")
    # Padding alone is no base64 either, whatever Python 3.10 makes of it.
    if url.find("=", start, max(end - 2, start + 1)) >= 0:
        raise refused
    try:
        # In pieces, between which the engine's steps go on.
        return b"".join(
            base64.b64decode(url[place : place + PIECE], validate=True) for place in range(start, end, PIECE)
        )
    except (binascii.Error, ValueError):
        raise refused from None


def check_image(image: Image, pixels: Budget) -> None:
    """Raises ParameterError where the bytes are no image that may be decoded; looks at the header only."""
    from PIL import Image as Pillow
    from PIL import UnidentifiedImageError

    try:
        with Pillow.open(BytesIO(image.data), formats=FORMATS) as opened:
            width, height = opened.size
        pixels.take(width * height)
    except MediaError as error:
        raise ParameterError.because(Fault(image.field, f"{error}")) from None
    except Pillow.DecompressionBombError as error:
        raise ParameterError.because(Fault(image.field, f"{error}")) from None
    except UnidentifiedImageError:
        expected = f"expected an image of one of the formats {', '.join(FORMATS)}, got something else"
        raise ParameterError.because(Fault(image.field, f"{expected}")) from None
    # Pillow's readers raise almost anything for a broken file.
    except Exception as error:
        raise ParameterError.because(Fault(image.field, f"the image cannot be read: {error}")) from error
