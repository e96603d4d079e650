"""What a child process does: it decodes one audio or one video by vLLM's own reader, and ends.

    the parent --bytes, Job--> decode --(frames or samples, or why not)--> the parent

It has limits of memory and of time that the system keeps: whatever a file makes of the libraries that read it (they are
written in C, and read what strangers send), the engine's process goes on.
"""

from __future__ import annotations

import json
import logging
import os
import resource
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from io import BytesIO
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ...conversation import MediaKind
from ...errors import one_line
from ...media.parts import EMBEDS
from ...vllm_messages import TOO_LONG
from ..library.parts import part

__all__ = ["Cut", "Job", "decode", "run", "warm_up"]

LIBRARIES = ("soundfile", "av", "cv2")
"""What vLLM's readers import when they are used."""

DURATION = "VLLM_MAX_AUDIO_DECODE_DURATION_S"
REASON = 200
"""Characters of an error that are told."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How audio is heard that is to be written down: vLLM's SpeechToTextConfig."""

    rate: float
    """Samples a second."""
    longest: float | None
    """Seconds of a piece; None: it is not cut."""
    searched: int = 1
    """Seconds before the end of a piece in which a quiet place is looked for."""
    window: int | None = None
    """Samples that are to be quiet; None: it is not cut."""


@dataclass(frozen=True, slots=True)
class Job:
    """How a file is decoded."""

    kind: MediaKind
    arguments: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Of vLLM's readers, by kind (media_io_kwargs)."""
    processor: str | None = None
    """The class of the model's video processor, by which vLLM chooses how frames are picked."""
    cut: Cut | None = None
    """Of audio that is to be written down; None: the samples are wanted as they are."""
    frames: bool = False
    """Whether the data are a video's frames (FRAMES)."""
    most: int = 0
    """Bytes that tensors may have together."""
    longest: int | None = None
    """Seconds that an audio may last; None: what vLLM's environment variable says."""
    memory: int = 0
    """Bytes that it may take; 0: no limit."""
    seconds: float = 0.0
    """Of a core; 0: no limit."""


def warm_up() -> None:
    """Imports what decodes, so that a process that is forked from this one need not."""
    part("vllm.multimodal.media.connector:MediaConnector")
    for library in LIBRARIES:
        with suppress(ImportError):
            import_module(library)


def run(connection: Connection, job: Job, data: bytes) -> None:
    """All that a child process does."""
    # What the libraries say of a client's file on the way is of no use to whom reads the log.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    logging.disable()
    if job.longest is not None:
        os.environ[DURATION] = str(job.longest)
    _limit(job)
    decode(connection, job, data)


def decode(connection: Connection, job: Job, data: bytes) -> None:
    """Sends (what was decoded, None), or (None, why it was not) over the connection."""
    try:
        answer: tuple[Any, str | None] = (_decoded(job, data), None)
    except MemoryError:
        answer = (None, _too_much(job))
    # The libraries raise almost anything for a broken file.
    except Exception as error:  # noqa: BLE001
        reason = one_line(str(error))[:REASON] or type(error).__name__
        if TOO_LONG in reason:
            most = _longest()
            reason = f"expected audio of at most {most} seconds (option.max_audio_seconds), got a longer one"
        answer = (None, reason)
    try:
        connection.send(answer)
    except MemoryError:
        # It is copied on its way.
        connection.send((None, _too_much(job)))


def _longest() -> int:
    """Seconds that audio may last; vLLM's default where nothing is said."""
    return int(os.environ.get(DURATION) or 600)


def _too_much(job: Job) -> str:
    return f"decoding takes more than {job.memory} bytes of memory (option.media_decode_memory)"


def _limit(job: Job) -> None:
    if job.memory:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + job.memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    if job.seconds:
        # Should the parent not be there any more to end it.
        seconds = int(job.seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def _decoded(job: Job, data: bytes) -> Any:
    """As vLLM's server has it of a URL."""
    base: Any = part("vllm.multimodal.media.connector:MediaConnector")

    class Given(base):  # type: ignore[misc]
        """Reads what is there already."""

        def load_from_url(self, url: str, media_io: Any, **_: Any) -> Any:
            del url
            return media_io.load_base64("video/jpeg", data.decode()) if job.frames else media_io.load_bytes(data)

    if job.cut is not None:
        return _pieces(job.cut, data)
    connector = Given(media_io_kwargs=job.arguments)
    if job.kind == EMBEDS:
        return _tensors(connector, data, job.most)
    if job.kind == "audio":
        return connector.fetch_audio("")
    return connector.fetch_video("", video_processor=job.processor)


def _tensors(connector: Any, data: bytes, most: int) -> bytes:
    """Tensors by their names, of which a single one has none, as safetensors: reading these runs nothing."""
    given: dict[str, str] = json.loads(data) if data[:1] == b"{" else {"": data.decode()}
    read = {name: connector.fetch_image_embedding(tensor) for name, tensor in given.items()}
    # An expanded tensor is smaller in a file.
    if (size := sum(tensor.numel() * tensor.element_size() for tensor in read.values())) > most:
        raise ValueError(f"expected tensors of at most {most} bytes (option.max_model_len), got {size}")
    whole = {name: tensor.contiguous() for name, tensor in read.items()}
    saved: bytes = import_module("safetensors.torch").save(whole)
    return saved


def _pieces(cut: Cut, data: bytes) -> list[Any]:
    """The samples of each piece, as vLLM's server cuts audio (SpeechToTextBaseServing._decode_and_chunk_speech)."""
    read = part("vllm.multimodal.media.audio:load_audio")
    samples, _ = read(BytesIO(data), sr=cut.rate, max_duration_s=_longest())
    if cut.longest is None or cut.window is None or len(samples) <= cut.longest * cut.rate:
        return [samples]
    pieces: list[Any] = part("vllm.multimodal.audio:split_audio")(
        audio_data=samples,
        sample_rate=int(cut.rate),
        max_clip_duration_s=cut.longest,
        overlap_duration_s=cut.searched,
        min_energy_window_size=cut.window,
    )
    return pieces
