"""Images before they are decoded: of what kind they are and how large.

    bytes --check_image--> bytes that may be decoded

A picture of a few kilobytes can ask for gigabytes when it is decoded, so its size is read from its header first.
"""

from __future__ import annotations

from io import BytesIO

from ..errors import Fault, ParameterError
from .parts import Budget, MediaFile
from .url_policy import MediaError

__all__ = ["check_image"]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
"""What is decoded, by Pillow's names: what browsers make. Pillow's other readers are many, and rarely reviewed."""


def check_image(image: MediaFile, pixels: Budget) -> None:
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
