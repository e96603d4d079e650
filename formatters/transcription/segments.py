"""What is said from when to when: from tokens that are points in time to segments, and to subtitles.

    <|0.00|> Hi. <|1.20|><|1.20|> Bye. <|2.00|>  --segments-->  Segment(0.0, 1.2, " Hi."), Segment(1.2, 2.0, " Bye.")
    segments --srt, vtt--> subtitles

A segment ends where two points follow each other (vLLM, SpeechToTextBaseServing._get_verbose_segments).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from ...model.events import Recording, Token

__all__ = ["Segment", "segments", "srt", "text_of", "vtt"]

STEP = 0.02
"""Seconds between two points in time that follow each other (Whisper's)."""
FRAMES = 100
"""Of Whisper's spectrogram, a second: what `seek` counts."""


class Segment(msgspec.Struct, frozen=True):
    """OpenAI's TranscriptionSegment."""

    id: int
    seek: int
    """Where its piece of the audio begins, in frames."""
    start: float
    """Seconds, as `end`."""
    end: float
    text: str
    tokens: tuple[int, ...]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float | None = None
    """Nobody knows it: vLLM tells no probability of a token that was not chosen."""


def segments(recording: Recording, pieces: Sequence[Sequence[Token]], temperature: float) -> list[Segment]:
    """Those of all pieces, by their tokens with log-probabilities; none without text."""
    made: list[Segment] = []
    first = recording.first_time or 0
    bounds = pairwise((*recording.starts, recording.seconds))
    for (begin, end), tokens in zip(bounds, pieces, strict=True):
        for start, stop, told in _parts(tokens, first):
            text = "".join(token.text for token in told if token.id < first)
            if not text.strip():
                continue
            raw = text.encode()
            logprobs = [token.logprob or 0.0 for token in told]
            made.append(
                Segment(
                    len(made),
                    int(begin * FRAMES),
                    _rounded(begin + start * STEP),
                    _rounded(end if stop is None else min(begin + stop * STEP, end)),
                    text,
                    tuple(token.id for token in told if token.id < first),
                    temperature,
                    sum(logprobs) / len(logprobs),
                    len(raw) / len(zlib.compress(raw)),
                )
            )
    return made


def _parts(tokens: Sequence[Token], first: int) -> Iterable[tuple[int, int | None, list[Token]]]:
    """Of each segment of a piece where it starts and stops, counted in STEP, and its tokens with the point at which it
    stops; None: where the piece does.

    What the model said before its prompt's end is the point 0. vLLM's own drops what comes after the last pair of
    points; here it is a segment too.
    """
    start, told = 0, list[Token]()
    for token in tokens:
        is_time = token.id >= first
        if is_time and not told:
            start = token.id - first
        elif is_time and told[-1].id >= first:
            yield start, told[-1].id - first, told
            start, told = token.id - first, []
        else:
            told.append(token)
    if told:
        yield start, told[-1].id - first if told[-1].id >= first else None, told


def _rounded(seconds: float) -> float:
    """Without what adding up has left behind."""
    return round(seconds, 6)


def text_of(found: Iterable[Segment], *, spaced: bool) -> str:
    """All that is said in segments."""
    return (" " if spaced else "").join(segment.text.strip() for segment in found)


def srt(found: Iterable[Segment]) -> str:
    """SubRip's form: numbered, with commas before the milliseconds."""
    return "".join(
        f"{number}\n{_clock(one.start, ',')} --> {_clock(one.end, ',')}\n{one.text.strip()}\n\n"
        for number, one in enumerate(found, 1)
    )


def vtt(found: Iterable[Segment]) -> str:
    """WebVTT's (W3C), in which `-->` may not stand in a text."""
    return "WEBVTT\n\n" + "".join(
        f"{_clock(one.start, '.')} --> {_clock(one.end, '.')}\n{one.text.strip().replace('-->', '->')}\n\n"
        for one in found
    )


def _clock(seconds: float, point: str) -> str:
    milliseconds = round(seconds * 1000)
    hours, rest = divmod(milliseconds, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{point}{rest % 1000:03}"
