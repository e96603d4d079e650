"""Images on vLLM: how many a prompt may have, decoding, and their way into its multimodal machinery.

    bytes --vLLM's own image reader--> pictures --in place of the URLs--> messages --vLLM's renderer--> prompt

vLLM never sees a URL that it could fetch: what it renders holds pictures already. Where they stand in the prompt is the
chat template's and vLLM's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...errors import Fault, ParameterError, one_line
from ...media.images import Image
from ...vllm_messages import PROCESSOR_FAILED
from ..core import Core
from ..library.internals import image_limit
from ..library.parts import part

__all__ = ["ImageDecoder", "processor_faults", "with_pictures"]

Message = dict[str, Any]


class ImageDecoder:
    """What a model's images need."""

    def __init__(self, core: Core) -> None:
        self.limit = image_limit(core)
        """How many images a prompt may have; 0: the model takes none."""
        self._io: Any = None
        if self.limit:
            config = core.model_config.multimodal_config
            given: dict[str, Any] = (config.media_io_kwargs or {}).get("image", {}) if config else {}
            self._io = part("vllm.multimodal.media.image:ImageMediaIO")(**{"image_mode": "RGB", **given})

    def decode(self, images: Iterable[Image]) -> list[Any]:
        """The pictures, read as vLLM's own server reads them; raises ParameterError."""
        return [self._decode(image) for image in images]

    def _decode(self, image: Image) -> Any:
        try:
            return self._io.load_bytes(image.data)
        except MemoryError:
            raise
        # Pillow's readers raise almost anything for a broken file.
        except Exception as error:
            reason = one_line(str(error))[:200]
            raise ParameterError.because(Fault(image.field, f"the image cannot be decoded: {reason}")) from error


@contextmanager
def processor_faults(images: Sequence[Image]) -> Iterator[None]:
    """Raises ParameterError for what a model's processor refuses (too narrow an image, say).

    vLLM's own message would repeat the prompt and its settings; the cause says what is wrong.
    """
    try:
        yield
    except ValueError as error:
        if error.__cause__ is None or not str(error).startswith(PROCESSOR_FAILED):
            raise
        field = images[0].field if len(images) == 1 else "prompt"
        reason = one_line(str(error.__cause__))[:200]
        raise ParameterError.because(Fault(field, f"the model's image processor refuses it: {reason}")) from error


def with_pictures(messages: Iterable[Any], pictures: Sequence[Any]) -> list[Any]:
    """The messages that `template_messages` made, after vLLM's validation, with the pictures in their places."""
    made: list[Any] = []
    for message in messages:
        content = message.get("content")
        if content is not None and not isinstance(content, str):
            message = {**message, "content": [_with_picture(part, pictures) for part in content]}
        made.append(message)
    return made


def _with_picture(part: Any, pictures: Sequence[Any]) -> Any:
    if part.get("type") != "image_url":
        return part
    return {"type": "image_pil", "image_pil": pictures[int(part["image_url"]["url"])]}
