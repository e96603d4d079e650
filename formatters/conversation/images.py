"""The URLs of images in requests. Whether the model takes images and the URL may be fetched, the engine's side judges.

"https://..." or "data:image/png;base64,..."              --read_url--> the URL
{"url": ..., "detail": "low"} or the URL by itself        --ImageUrl--> the URL, and what the client calls it
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model.errors import Fault, ParameterError, PayloadError
from ..common.kinds import Object, Text
from ..common.schemas import FILLED, objects, one_of
from ..dialect import JsonSchema

__all__ = ["DETAIL", "ImageUrl", "read_url"]

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
class ImageUrl:
    """An image's URL, by itself or in an object. With `base64` it may be bare base64."""

    base64: bool = False

    @property
    def schema(self) -> JsonSchema:
        return one_of(FILLED, objects(["url"], url=FILLED, detail=DETAIL.schema))

    @property
    def description(self) -> str:
        return "a URL, or an object with url and detail"

    def read(self, name: str, given: Any) -> tuple[str, str]:
        """The URL, and what the client calls it."""
        if isinstance(given, str):
            return read_url(given, name, base64=self.base64), name
        if given is None:
            # vLLM's server takes an image that it has seen by its uuid (docs/decisions.md: Images by their names).
            expected = "a URL, or an object with it; no image is known by its uuid"
            raise PayloadError.because(Fault(name, expected=expected))
        image = Object().read(name, given)
        if image.get("detail") is not None:
            DETAIL.read(f"{name}.detail", image["detail"])
        return read_url(image.get("url"), f"{name}.url", base64=self.base64), f"{name}.url"


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
