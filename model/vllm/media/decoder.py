"""Media on vLLM: how many a prompt may have, decoding, and their way into its multimodal machinery.

    bytes --vLLM's own readers--> pictures, samples, frames --in place of URLs--> messages --vLLM's renderer--> prompt

vLLM never sees a URL that it could fetch: what it renders holds pictures already, and asks for what else is decoded by
its number (connector.py). Where they stand in the prompt is the chat template's and vLLM's to say.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

from ...errors import Fault, ParameterError, one_line
from ...media.parts import Budget, MediaFile
from ...media.url_policy import MediaError
from ...options.media_rules import MediaRules
from ...vllm_messages import PROCESSOR_FAILED
from ..core import Core
from ..library.internals import media_limits, video_processor
from ..library.parts import part
from .child_process import Decoders
from .connector import use_connector
from .decoding import Cut, Job

__all__ = ["MediaDecoder", "processor_faults", "with_pictures"]

log = logging.getLogger(__name__)

Message = dict[str, Any]
READERS = ("soundfile", "av")
"""The packages by which vLLM decodes audio (its extra `audio`)."""


class MediaDecoder:
    """What a model's images, audio and videos need."""

    def __init__(self, core: Core, rules: MediaRules) -> None:
        self.limits = media_limits(core)
        """How many of each kind a prompt may have; 0: the model takes none."""
        self._rules = rules
        self._io: Any = None
        config = core.model_config.multimodal_config
        self._arguments: dict[str, dict[str, Any]] = (config.media_io_kwargs if config else None) or {}
        if self.limits["image"]:
            given = self._arguments.get("image", {})
            self._io = part("vllm.multimodal.media.image:ImageMediaIO")(**{"image_mode": "RGB", **given})
        self.processing = threading.Lock()
        """Held while a model's processor of media works: vLLM's are not made for several threads."""
        self._decoders: Decoders | None = None
        self.missing = ""
        """What would have to be installed for a model that hears."""
        if self.limits["audio"] and (missing := [name for name in READERS if find_spec(name) is None]):
            self.missing = ", ".join(missing)
            log.warning("audio is refused: what decodes it is not installed: %s", self.missing)
            self.limits["audio"] = 0
        if self.limits["audio"] or self.limits["video"]:
            use_connector()
            self._decoders = Decoders(rules)
            self._processor = video_processor(core) if self.limits["video"] else None

    def warm_up(self) -> None:
        """Has what decodes audio and videos ready, on another thread: it takes seconds."""
        if self._decoders is not None:
            threading.Thread(target=self._decoders.warm_up, name="lmi-decoding", daemon=True).start()

    def pieces(self, file: MediaFile, cut: Cut) -> list[Any]:
        """The samples of audio that is to be written down, cut as vLLM's server cuts it; raises ParameterError."""
        job = Job("audio", cut=cut, longest=self._rules.max_audio_seconds)
        pieces: list[Any] = self._read(file, lambda: self._heard(job, file.data))
        return pieces

    def decode(self, files: Iterable[MediaFile]) -> list[Any]:
        """The pictures, samples and frames, read as vLLM's own server reads them; raises ParameterError."""
        pixels = Budget(self._rules.max_video_pixels, "pixels of frames", "max_video_pixels", "video")
        return [self._read(file, partial(self._decode, file, pixels)) for file in files]

    def _read(self, file: MediaFile, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except MemoryError:
            raise
        except MediaError as error:
            raise ParameterError.because(Fault(file.field, f"{error}")) from None
        # Pillow's readers raise almost anything for a broken file.
        except Exception as error:
            reason = one_line(str(error))[:200]
            raise ParameterError.because(Fault(file.field, f"the {file.kind} cannot be decoded: {reason}")) from error

    def _decode(self, file: MediaFile, pixels: Budget) -> Any:
        if file.kind == "image":
            return self._io.load_bytes(file.data)
        if file.kind == "audio":
            return self._heard(Job("audio", self._arguments, longest=self._rules.max_audio_seconds), file.data)
        assert self._decoders is not None
        decoded = self._decoders.decode(Job("video", self._arguments, self._processor), file.data)
        # vLLM 0.32 keeps the bytes beside the frames.
        frames, _ = getattr(decoded, "media", decoded)
        pixels.take(frames.size // 3)
        return decoded

    def _heard(self, job: Job, data: bytes) -> Any:
        assert self._decoders is not None
        heard = self._decoders.decode(job, data)
        if not len(heard[0]):
            raise MediaError("expected audio that lasts, got none")
        return heard


@contextmanager
def processor_faults(files: Sequence[MediaFile]) -> Iterator[None]:
    """Raises ParameterError for what a model's processor refuses (too narrow an image, say).

    vLLM's own message would repeat the prompt and its settings; the cause says what is wrong.
    """
    try:
        yield
    except ValueError as error:
        if error.__cause__ is None or not str(error).startswith(PROCESSOR_FAILED):
            raise
        kinds = {file.kind for file in files}
        word = kinds.pop() if len(kinds) == 1 else "media"
        field = files[0].field if len(files) == 1 else "prompt"
        reason = one_line(str(error.__cause__))[:200]
        raise ParameterError.because(Fault(field, f"the model's {word} processor refuses it: {reason}")) from error


def with_pictures(messages: Iterable[Any], pictures: Sequence[Any]) -> list[Any]:
    """The messages that `template_messages` made, after vLLM's validation, with the pictures in their places; what else
    is decoded keeps its number as its URL."""
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
