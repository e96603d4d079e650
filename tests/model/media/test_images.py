"""The headers of images: what is decoded, and how large it may be."""

from __future__ import annotations

import pytest

from lmi.model.media.images import check_image

from ...kit.api.engine import Budget
from ...kit.api.errors import ParameterError
from ...kit.api.types import MediaFile
from ...kit.models.pictures import bomb, png
from ...kit.rows import each_row

FIELD = "prompt.messages[0].content[1].url"


def checked(data: bytes, pixels: int = 1 << 20) -> str:
    with pytest.raises(ParameterError) as caught:
        check_image(MediaFile(data, FIELD), Budget(pixels, "pixels", "max_image_pixels"))
    assert caught.value.param == FIELD
    assert caught.value.message.startswith(f"{FIELD}: ")
    return caught.value.message


def test_pixels_are_limited() -> None:
    check_image(MediaFile(png(10, 10), FIELD), Budget(101, "pixels", "max_image_pixels"))
    check_image(MediaFile(png(10, 10), FIELD), Budget(100, "pixels", "max_image_pixels"))
    message = "expected images of at most 99 pixels together (option.max_image_pixels), got 100 or more"
    assert checked(png(10, 10), 99) == f"{FIELD}: {message}"


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [1025, 10_000, 20_000, 2**31 - 1])
def test_a_decompression_bomb_is_not_decoded(side: int) -> None:
    """Pillow itself refuses to open the largest."""
    assert len(bomb(side, side)) < 100
    message = checked(bomb(side, side))
    assert "pixels" in message


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'
TIFF = b"II*\0\x08\0\0\0\0\0\0\0\0\0"
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"


@each_row("data", [b"", b"<html>", SVG, TIFF, EPS, b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF\0\0\0\0WEBP"])
def test_what_is_no_image_is_refused(data: bytes) -> None:
    message = checked(data)
    assert "expected an image of one of the formats JPEG, PNG, WEBP, GIF, BMP" in message or "cannot be read" in message
