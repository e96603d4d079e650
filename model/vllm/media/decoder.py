"""Media on vLLM: how many a prompt may have, decoding, and their way into its multimodal machinery.

    bytes --vLLM's own readers--> pictures, samples, frames --in place of URLs--> messages --vLLM's renderer--> prompt

vLLM never sees a URL that it could fetch: what it renders holds pictures already, and asks for what else is decoded by
its number (connector.py). Where they stand in the prompt is the chat template's and vLLM's to say.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ...conversation import MediaKind
from ...errors import Fault, ParameterError, one_line, raised_by_us
from ...media.parts import EMBEDS, Budget, MediaFile
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
Arguments = dict[str, dict[str, Any]]
"""Of vLLM's readers, by kind."""
PROCESSOR_ARGUMENTS = "prompt.processor_arguments"
WIDEST = 32
"""Bytes that embeddings have for each of a token's numbers: four, and some models have several layers of them."""
READERS = ("soundfile", "av")
"""The packages by which vLLM decodes audio (its extra `audio`)."""


class MediaDecoder:
    """What a model's images, audio and videos need."""

    def __init__(self, core: Core, rules: MediaRules) -> None:
        self.limits = media_limits(core)
        """How many of each kind a prompt may have; 0: the model takes none."""
        self._rules = rules
        config = core.model_config.multimodal_config
        self._embeds = WIDEST * core.model_config.max_model_len * core.model_config.get_inputs_embeds_size()
        """Bytes of all embeddings of a prompt."""
        self._arguments: Arguments = (config.media_io_kwargs if config else None) or {}
        self.processing = threading.Lock()
        """Held while a model's processor of media works: vLLM's are not made for several threads."""
        self._decoders: Decoders | None = None
        self.missing = ""
        """What would have to be installed for a model that hears."""
        if self.limits["audio"] and (missing := [name for name in READERS if find_spec(name) is None]):
            self.missing = ", ".join(missing)
            log.warning("audio is refused: what decodes it is not installed: %s", self.missing)
            self.limits["audio"] = 0
        if self.limits["audio"] or self.limits["video"] or self.limits[EMBEDS]:
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
        pieces: list[Any] = self._read(file, partial(self._heard, job, file))
        return pieces

    def decode(self, files: Iterable[MediaFile], given: Arguments | None = None) -> list[Any]:
        """The pictures, samples and frames, read as vLLM's own server reads them; raises ParameterError.

        given: a request's own arguments of the readers (media_io_kwargs).
        """
        budgets: dict[MediaKind, Budget] = {
            "video": Budget(self._rules.max_video_pixels, "pixels of frames", "max_video_pixels", "video"),
            EMBEDS: Budget(self._embeds, "bytes of tensors", "max_model_len", EMBEDS),
        }
        arguments = self._merged(given)
        return [self._read(file, partial(self._decode, file, budgets, arguments)) for file in files]

    def sounds(self, files: Iterable[MediaFile], given: Arguments | None = None) -> dict[int, Any]:
        """What is heard in the videos, by their places; raises ParameterError. given: as for `decode`."""
        job = Job("audio", self._merged(given), longest=self._rules.max_audio_seconds)
        return {
            place: self._read(file, partial(self._heard, job, file))
            for place, file in enumerate(files)
            if file.kind == "video"
        }

    def _merged(self, given: Arguments | None) -> Arguments:
        """The arguments of the readers, a request's own among them."""
        if not given:
            return self._arguments
        merged: Arguments = part("vllm.multimodal.media.connector:merge_media_io_kwargs")(self._arguments, given)
        return merged

    def _read(self, file: MediaFile, read: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
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
        finally:
            file.seconds += time.perf_counter() - begun

    def _decode(self, file: MediaFile, budgets: Mapping[MediaKind, Budget], arguments: Arguments) -> Any:
        if file.kind == "image":
            given = {"image_mode": "RGB", **arguments.get("image", {})}
            return part("vllm.multimodal.media.image:ImageMediaIO")(**given).load_bytes(file.data)
        if file.kind == EMBEDS:
            return self._embedded(file, budgets[EMBEDS])
        if file.kind == "audio":
            return self._heard(Job("audio", arguments, longest=self._rules.max_audio_seconds), file)
        assert self._decoders is not None
        job = Job("video", arguments, self._processor, frames=file.frames)
        decoded = self._decoders.decode(job, file.data, file.ended)
        # vLLM 0.32 keeps the bytes beside the frames.
        frames, _ = getattr(decoded, "media", decoded)
        budgets["video"].take(frames.size // 3)
        return decoded

    def _embedded(self, file: MediaFile, budget: Budget) -> dict[str, Any]:
        """Tensors by their names, of which a single one has none."""
        assert self._decoders is not None
        saved: bytes = self._decoders.decode(Job(EMBEDS, most=self._embeds), file.data, file.ended)
        budget.take(len(saved))
        tensors: dict[str, Any] = import_module("safetensors.torch").load(saved)
        return tensors

    def _heard(self, job: Job, file: MediaFile) -> Any:
        assert self._decoders is not None
        heard = self._decoders.decode(job, file.data, file.ended)
        if not len(heard[0]):
            raise MediaError("expected audio that lasts, got none")
        return heard


@contextmanager
def processor_faults(files: Sequence[MediaFile], arguments: dict[str, Any] | None = None) -> Iterator[None]:
    """Raises ParameterError for what a model's processor refuses (too narrow an image, say), or a request's own
    `arguments` of it (mm_processor_kwargs).

    vLLM's own message would repeat the prompt and its settings; the cause says what is wrong.
    """
    try:
        yield
    except Exception as error:
        if raised_by_us(error) or isinstance(error, (MemoryError, import_module("torch").OutOfMemoryError)):
            raise
        embeds = [file.field for file in files if file.kind == EMBEDS]
        if arguments or embeds:
            # They may be anything, and so is what processors raise for them.
            reason = one_line(str(error.__cause__ or error))[:200]
            field = PROCESSOR_ARGUMENTS if arguments else embeds[0]
            raise ParameterError.because(Fault(field, f"the model's processor refuses it: {reason}")) from error
        if not isinstance(error, ValueError) or error.__cause__ is None or not str(error).startswith(PROCESSOR_FAILED):
            raise
        kinds = {file.kind for file in files}
        word = kinds.pop() if len(kinds) == 1 else "media"
        field = files[0].field if len(files) == 1 else "prompt"
        reason = one_line(str(error.__cause__))[:200]
        raise ParameterError.because(Fault(field, f"the model's {word} processor refuses it: {reason}")) from error


def with_pictures(messages: Iterable[Any], pictures: Sequence[Any]) -> list[Any]:
    """The messages that `template_messages` made, after vLLM's validation, with the pictures in their places; what else
    is decoded keeps its number as its URL, and of embeddings each tensor has its name beside it."""
    made: list[Any] = []
    for message in messages:
        content = message.get("content")
        if content is not None and not isinstance(content, str):
            message = {**message, "content": [_with_picture(part, pictures) for part in content]}
        made.append(message)
    return made


def _with_picture(part: Any, pictures: Sequence[Any]) -> Any:
    if part.get("type") == EMBEDS:
        number = part[EMBEDS]
        names = {name: f"{number}:{name}" for name in pictures[int(number)]}
        return {**part, EMBEDS: names.get("", names)}
    if part.get("type") != "image_url":
        return part
    return {"type": "image_pil", "image_pil": pictures[int(part["image_url"]["url"])]}
