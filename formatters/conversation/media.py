"""The URLs of images, audio and videos in requests. Whether the model takes them and a URL may be fetched, the engine's
side judges.

"https://..." or "data:image/png;base64,..."              --read_url--> the URL
{"url": ..., "detail": "low"} or the URL by itself        --MediaUrl--> the URL, and what the client calls it
{"data": "UklGR...", "format": "wav"}                     --AudioData--> a data URL, and what the client calls the data
"UEsDBA..." or {"image_embeds": "UEsDBA..."}              --ImageEmbeds--> it as text, and what the client calls it
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model.conversation import MediaKind
from ...model.errors import Fault, ParameterError, PayloadError
from ...model.media.parts import called
from ..base import encode
from ..common.kinds import Filled, Object, Text
from ..common.schemas import FILLED, objects, one_of
from ..dialect import JsonSchema

__all__ = ["DETAIL", "AudioData", "ImageEmbeds", "MediaUrl", "read_url"]

DETAIL = Text(("auto", "low", "high", "original"))
"""Accepted everywhere; vLLM's models take every image as it is."""
SCHEMES = ("data:", "http://", "https://", "file://")
BASE64_KINDS: Mapping[bytes, str] = {
    rb"\x89PNG": "image/png",
    rb"\xff\xd8\xff": "image/jpeg",
    rb"GIF8": "image/gif",
    rb"RIFF....WEBP": "image/webp",
}
"""Types of images by what their first bytes match."""


@dataclass(frozen=True, slots=True)
class MediaUrl:
    """The URL of an image, audio or a video, by itself or in an object. With `base64` it may be bare base64."""

    kind: MediaKind = "image"
    base64: bool = False

    @property
    def schema(self) -> JsonSchema:
        more = {"detail": DETAIL.schema} if self.kind == "image" else {}
        return one_of(FILLED, objects(["url"], url=FILLED, **more))

    @property
    def description(self) -> str:
        return "a URL, or an object with url and detail" if self.kind == "image" else "a URL, or an object with url"

    def read(self, name: str, given: Any) -> tuple[str, str]:
        """The URL, and what the client calls it."""
        if isinstance(given, str):
            return read_url(given, name, self.kind, base64=self.base64), name
        if given is None:
            # vLLM's server takes an image that it has seen by its uuid (docs/decisions.md: Images by their names).
            expected = f"a URL, or an object with it; no {self.kind} is known by its uuid"
            raise PayloadError.because(Fault(name, expected=expected))
        media = Object().read(name, given)
        if self.kind == "image" and media.get("detail") is not None:
            DETAIL.read(f"{name}.detail", media["detail"])
        return read_url(media.get("url"), f"{name}.url", self.kind, base64=self.base64), f"{name}.url"


@dataclass(frozen=True, slots=True)
class AudioData:
    """Audio in base64, and its format, as OpenAI's clients send it. Who decodes it sees by itself what it is."""

    @property
    def schema(self) -> JsonSchema:
        return objects(["data"], data=FILLED, format=FILLED)

    @property
    def description(self) -> str:
        return "an object with data and format"

    def read(self, name: str, given: Any) -> tuple[str, str]:
        """A data URL, and what the client calls the data."""
        audio = Object().read(name, given)
        data = Filled().read(f"{name}.data", audio.get("data"))
        form = Filled().read(f"{name}.format", audio.get("format", "wav"))
        if not FORMAT.fullmatch(form):
            raise PayloadError.of(f"{name}.format", form[:64], "the name of a format, as wav or mp3")
        return f"data:audio/{form};base64,{data}", f"{name}.data"


@dataclass(frozen=True, slots=True)
class ImageEmbeds:
    """A tensor in base64, or an object of such, by the names that the model's processor has for them, as vLLM's server
    takes them."""

    @property
    def schema(self) -> JsonSchema:
        return one_of(FILLED, {"type": "object", "additionalProperties": FILLED, "minProperties": 1})

    @property
    def description(self) -> str:
        return "a tensor in base64, or an object of such"

    def read(self, name: str, given: Any) -> tuple[str, str]:
        """As Media.url has it, and what the client calls it."""
        if isinstance(given, str):
            return Filled().read(name, given), name
        tensors = Object().read(name, given)
        if not tensors:
            raise PayloadError.of(name, given, self.description)
        for key, tensor in tensors.items():
            Filled().read(f"{name}.{key[:64]}", tensor)
        return encode(tensors).decode(), name


FORMAT = re.compile(r"[\w.+-]{1,64}", re.ASCII)


def read_url(given: Any, field: str, kind: MediaKind = "image", *, base64: bool = False) -> str:
    """The URL of an image, audio or a video; with `base64` it may be bare base64. Raises PayloadError and
    ParameterError.
    """
    expected = f"a URL of {called(kind)}: data:{kind}/...;base64,..., https://... or http://..."
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
        for mark, type_ in BASE64_KINDS.items():
            if re.match(mark, start, re.DOTALL):
                return f"data:{type_};base64,{packed}"
    raise ParameterError.of(field, given[:200], expected)
