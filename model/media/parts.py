"""The media of a conversation before the engine sees them: where they stand, and how much they are.

    Conversation --media_parts--> parts --data URL, or Fetcher--> bytes

What the bytes are, is found out where they are decoded: of an image images.py, of audio and video vLLM's side.
"""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from ..conversation import MediaKind, Message, Text
from ..generation import Conversation, Generation
from ..text.template_messages import KINDS, media_in
from .url_policy import MediaError

__all__ = [
    "AUDIO", "EMBEDS", "FRAMES", "WORDS", "Budget", "MediaFile", "MediaPart", "called", "data_url_bytes", "is_data_url",
    "media_parts", "parts_of", "without_media",
]  # fmt: skip

EMBEDS: Final = "image_embeds"
WORDS: dict[MediaKind, str] = {
    "image": "images",
    "audio": "audio",
    "video": "videos",
    EMBEDS: "embeddings of images",
}
"""What several of a kind are called."""
EXAMPLES: dict[MediaKind, str] = {"image": "image/png", "audio": "audio/wav", "video": "video/mp4"}
NOUNS: dict[MediaKind, str] = {"image": "an image", "audio": "audio", "video": "a video", EMBEDS: "image_embeds"}

AUDIO = "transcription.audio"
"""The path of what is to be written down, file or URL."""

FRAMES = "data:video/jpeg;base64,"
"""How a video begins whose frames are JPEG files in base64, with commas between them."""

PIECE = 1 << 20
"""Characters of base64 that are decoded at once; a multiple of 4."""


@dataclass(frozen=True, slots=True)
class MediaPart:
    """An image, audio or a video of a conversation, as the request names it."""

    kind: MediaKind
    url: str
    place: str
    """The part's path, as prompt.messages[0].content[1]."""
    field: str
    """The URL's path, for errors about it."""
    data: bytes = b""
    """What it is, where it is there already and has no URL."""

    @property
    def is_there(self) -> bool:
        """Whether nothing of it is to be fetched."""
        return bool(self.data) or self.kind == EMBEDS or is_data_url(self.url)

    @property
    def is_frames(self) -> bool:
        """Whether it is a video that comes as its frames (FRAMES)."""
        return self.kind == "video" and self.url[: len(FRAMES)].lower() == FRAMES


@dataclass(slots=True)
class MediaFile:
    """An image, audio or a video that is to be decoded."""

    data: bytes
    field: str
    """Its path in a Generation, for errors about it."""
    kind: MediaKind = "image"
    frames: bool = False
    """Whether `data` is what stands after FRAMES."""
    ended: threading.Event | None = None
    """Set once nobody waits for it any more."""
    seconds: float = 0.0
    """What decoding it has taken."""


class Budget:
    """How much all media of a kind may have together in a prompt; several threads may take from it."""

    def __init__(self, limit: int, what: str, option: str, kind: MediaKind = "image") -> None:
        self._limit = limit
        self._left = limit
        self._message = f"expected {WORDS[kind]} of at most {limit} {what} together (option.{option})"
        self._lock = threading.Lock()

    def take(self, amount: int) -> None:
        """Raises MediaError where it is more than is left."""
        with self._lock:
            self._left -= amount
            if self._left < 0:
                raise MediaError(f"{self._message}, got {self._limit - self._left} or more")


def called(kind: MediaKind) -> str:
    """What one of a kind is called, with its article."""
    return NOUNS[kind]


def parts_of(generation: Generation) -> list[MediaPart]:
    """The media of its conversation, or the audio that is to be written down."""
    if (asked := generation.transcription) is not None:
        return [MediaPart("audio", asked.url, "transcription", AUDIO, asked.audio)]
    prompt = generation.prompt
    return media_parts(prompt) if isinstance(prompt, Conversation) else []


def media_parts(conversation: Conversation) -> list[MediaPart]:
    """The media, in their order."""
    return [
        _part(media.kind, media.url, f"prompt.messages[{number}].content[{index}]")
        for number, message in enumerate(conversation.messages)
        for index, media in media_in(message)
    ]


def without_media(conversation: Conversation, kinds: Collection[MediaKind]) -> Conversation:
    """The conversation with a text in the place of all media of these kinds, for a model that cannot read them."""
    return replace(conversation, messages=tuple(_told(message, kinds) for message in conversation.messages))


def _told(message: Message | dict[str, Any], kinds: Collection[MediaKind]) -> Message | dict[str, Any]:
    if isinstance(message, dict):
        content = message.get("content")
        if not isinstance(content, list):
            return message
        return {**message, "content": [_told_part(part, kinds) for part in content]}
    if isinstance(message.content, str):
        return message
    return replace(
        message,
        content=tuple(
            part if isinstance(part, Text) or part.kind not in kinds else Text(_left_out(part.kind))
            for part in message.content
        ),
    )


def _told_part(part: dict[str, Any], kinds: Collection[MediaKind]) -> dict[str, Any]:
    kind = KINDS.get(part.get("type", ""))
    return part if kind is None or kind not in kinds else {"type": "text", "text": _left_out(kind)}


def _left_out(kind: MediaKind) -> str:
    noun = called(kind)
    return f"[{noun[0].upper()}{noun[1:]} was left out: this model cannot read it.]"


def _part(kind: MediaKind, url: str, place: str) -> MediaPart:
    return MediaPart(kind, url, place, f"{place}.url")


def is_data_url(url: str) -> bool:
    """Whether it is in the URL itself."""
    return url[:5].lower() == "data:"


def data_url_bytes(url: str, budget: Budget, wanted: MediaKind = "image") -> bytes:
    """What a data URL holds (RFC 2397, base64 only); raises MediaError."""
    comma = url.find(",")
    kind, *parameters = url[5:comma].lower().split(";")
    form = f"data:{EXAMPLES[wanted]};base64,..."
    if comma < 0 or not parameters or parameters[-1].strip() != "base64":
        raise MediaError(f"expected a data URL as {form}")
    if not kind.strip().startswith(f"{wanted}/"):
        raise MediaError(f"expected a data URL of {called(wanted)}, as {form}, got {kind[:60]!r}")
    start, end = comma + 1, len(url)
    budget.take((end - start) // 4 * 3 - url.count("=", max(start, end - 2)))
    refused = MediaError("expected data in base64 (RFC 4648), got something else")
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
