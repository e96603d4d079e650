"""The answers of a transcription, typed: OpenAI's API reference (audio: createTranscription, createTranslation), and in
streams vLLM's server's chunks beside its events (entrypoints/speech_to_text/*/protocol.py).
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from .segments import Segment

__all__ = ["Chunk", "Duration", "StreamUsage", "TranscriptBody", "VerboseBody"]


class Duration(msgspec.Struct, frozen=True):
    """The usage of an answer that is not streamed."""

    seconds: int
    type: str = "duration"


class TranscriptBody(msgspec.Struct, frozen=True):
    """The text alone."""

    text: str
    usage: Duration | UnsetType = UNSET


class VerboseBody(msgspec.Struct, frozen=True, kw_only=True):
    """The text and when it is said."""

    task: str
    language: str | None
    duration: float
    text: str
    segments: tuple[Segment, ...]
    usage: Duration | UnsetType = UNSET


class StreamUsage(msgspec.Struct, frozen=True):
    """Tokens, by the names that OpenAI's events have for them, and by those of chunks."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    prompt_tokens: int
    completion_tokens: int
    type: str = "tokens"


class ChunkDelta(msgspec.Struct, frozen=True):
    """What is new."""

    content: str


class ChunkChoice(msgspec.Struct, frozen=True):
    """The one answer."""

    delta: ChunkDelta
    finish_reason: str | None = None
    index: int = 0


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's event, which is vLLM's chunk too."""

    type: str
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    usage: StreamUsage | UnsetType = UNSET
    id: str
    object: str
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]

    @classmethod
    def choice(cls, content: str, finish: str | None = None) -> tuple[ChunkChoice, ...]:
        """What `choices` has."""
        return (ChunkChoice(ChunkDelta(content), finish),)
