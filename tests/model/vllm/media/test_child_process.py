"""Audio and videos are decoded in processes of their own: what they are, and what they cannot be."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from lmi.model.vllm.media.child_process import Decoders

from ....kit.api.engine import DecodingCut, DecodingJob, MediaError
from ....kit.api.options import MediaRules
from ....kit.media.films import clip
from ....kit.media.sounds import encoded, sine, tone
from ....kit.rows import each_row

pytestmark = pytest.mark.engine

AUDIO, VIDEO = DecodingJob("audio"), DecodingJob("video")
HOURS = DecodingJob("audio", longest=1 << 20)
SOON = 2.0
"""Seconds after which whoever sent it knows that it is refused, where the machine has nothing else to do."""


@pytest.fixture(scope="module")
def decoders() -> Decoders:
    made = Decoders(MediaRules())
    # The first waits for what all the others are forked from.
    made.decode(AUDIO, tone(0.1))
    return made


def silence(seconds: int, rate: int = 8000) -> bytes:
    """Of hours, a file of kilobytes (MP3 and Ogg have more for each second than FLAC)."""
    import numpy as np

    return encoded(np.zeros(seconds * rate, np.float32), rate, "flac")


SOUNDS = [
    (form, rate, channels)
    for form in ("wav", "flac", "ogg", "mp3")
    for rate, channels in ((8000, 1), (16000, 1), (44100, 2), (48000, 2))
]


@each_row(("form", "rate", "channels"), SOUNDS)
def test_audio_is_decoded(decoders: Decoders, form: str, rate: int, channels: int) -> None:
    """To one channel, at the rate that it has: vLLM's processor brings it to the model's."""
    samples, found = decoders.decode(AUDIO, encoded(sine(1.5, rate, channels=channels), rate, form))
    assert found == rate
    assert samples.ndim == 1
    assert abs(len(samples) / rate - 1.5) < 0.1
    assert 0.1 < abs(samples).max() < 1.0


@each_row(("form", "arguments", "frames"), [("mp4", {}, 32), ("avi", {}, 32), ("mp4", {"num_frames": 5}, 5)])
def test_frames_of_a_video(decoders: Decoders, form: str, arguments: dict[str, Any], frames: int) -> None:
    job = DecodingJob("video", {"video": arguments})
    decoded = decoders.decode(job, clip(40, (64, 48), form))
    pictures, facts = getattr(decoded, "media", decoded)
    assert pictures.shape == (frames, 48, 64, 3)
    assert facts["total_num_frames"] == 40


def test_nobody_waits_for_what_has_ended(decoders: Decoders) -> None:
    """A request that was aborted: its file is not decoded to the end."""
    ended = threading.Event()
    ended.set()
    with pytest.raises(MediaError, match="its request has ended"):
        decoders.decode(HOURS, silence(3600), ended)


BROKEN: dict[str, tuple[DecodingJob, Callable[[], bytes], str]] = {
    "nothing": (AUDIO, lambda: b"", "the audio cannot be decoded: "),
    "a text": (AUDIO, lambda: b"hello " * 100, "the audio cannot be decoded: "),
    "a picture": (AUDIO, lambda: b"\x89PNG\r\n\x1a\n" + bytes(200), "the audio cannot be decoded: "),
    "a video without sound": (AUDIO, lambda: clip(8), "the audio cannot be decoded: "),
    "cut off": (AUDIO, lambda: encoded(sine(3), 16000, "flac")[:3000], "the audio cannot be decoded: "),
    "no video": (VIDEO, lambda: tone(1), "the video cannot be decoded: "),
    "a video cut off": (VIDEO, lambda: clip(40)[:800], "the video cannot be decoded: "),
    "an empty video": (VIDEO, lambda: b"", "the video cannot be decoded: "),
    "too long": (AUDIO, lambda: tone(601, 8000), "expected audio of at most 600 seconds (option.max_audio_seconds)"),
}


@each_row("name", BROKEN)
def test_what_is_no_media_is_refused_soon(decoders: Decoders, name: str) -> None:
    job, make, expected = BROKEN[name]
    begun = time.monotonic()
    with pytest.raises(MediaError) as caught:
        decoders.decode(job, make())
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - begun < 5 * SOON
    assert decoders.decode(AUDIO, tone(0.1))[1] == 16000


def test_ten_hours_in_a_small_file_are_refused(decoders: Decoders) -> None:
    bomb = silence(36_000)
    assert len(bomb) < 1 << 20
    begun = time.monotonic()
    with pytest.raises(MediaError, match="expected audio of at most 600 seconds"):
        decoders.decode(AUDIO, bomb)
    assert time.monotonic() - begun < 5 * SOON


@each_row(
    ("rules", "expected"),
    [
        (
            {"media_decode_memory": 1 << 26},
            "takes more than 67108864 bytes of memory (option.media_decode_memory)",
        ),
        ({"media_decode_timeout": 0.05}, "could not be decoded within 0.05 seconds (option.media_decode_timeout)"),
    ],
)
def test_memory_and_time_are_limited(rules: dict[str, Any], expected: str) -> None:
    limited = Decoders(MediaRules(**rules))
    with pytest.raises(MediaError) as caught:
        limited.decode(HOURS, silence(7200))
    assert expected in str(caught.value)


MADE: dict[str, tuple[DecodingJob, Callable[[], bytes]]] = {
    **{form: (AUDIO, partial(encoded, sine(1), 16000, form)) for form in ("wav", "flac", "ogg", "mp3")},
    "mp4": (VIDEO, partial(clip, 12)),
    "avi": (VIDEO, partial(clip, 12, format="avi")),
    "audio that is to be written down": (
        DecodingJob("audio", cut=DecodingCut(16000, 2.0, 1, 1600)),
        partial(encoded, sine(3), 44100, "ogg"),
    ),
}
ROUNDS = 8


@each_row("name", MADE)
def test_whatever_a_file_has_in_it_nothing_else_comes_of_it(decoders: Decoders, name: str) -> None:
    """Bytes that are changed, left out and doubled: it is decoded or refused by name, and others go on."""
    job, make = MADE[name]
    whole, draw = make(), random.Random(name)
    for _ in range(ROUNDS):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 20)):
            place = draw.randrange(len(data))
            data[place : place + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 3))
        begun = time.monotonic()
        with suppress(MediaError):
            decoders.decode(job, bytes(data))
        assert time.monotonic() - begun < 5 * SOON
    assert decoders.decode(AUDIO, tone(0.1))[1] == 16000
