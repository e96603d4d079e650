"""The replies to a request for a transcription.

    whole     json: {"text", "usage"}   text: the text alone   verbose_json: with segments   srt, vtt: subtitles
    stream    data: {"type": "transcript.text.delta", "delta"}  ...  data: {"type": "transcript.text.done", "text",
              "usage"}   data: [DONE]

The events of a stream are OpenAI's, and each is a chunk of vLLM's server too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from msgspec import UNSET

from ...model.errors import LmiError
from ...model.events import Delta, Event, Recording, Started, Token
from ..base import Response, encode, event_record
from ..common.encoder import Encoder
from ..openai.bodies import error_body
from ..openai.reply import DONE, FINISH_WORDS, Identity, error_response
from .bodies import Chunk, Duration, StreamUsage, TranscriptBody, VerboseBody
from .pieces import Joined
from .segments import segments, srt, text_of, vtt

__all__ = ["TextReply", "TimedReply", "TranscriptStream"]

PLAIN = "text/plain; charset=utf-8"
CUT = ("content_filter", "length")
"""How pieces end that are not whole."""


@dataclass(slots=True, kw_only=True)
class Reply(Encoder):
    """What all replies share."""

    translates: bool
    recording: Recording = field(default_factory=lambda: Recording(0.0, (0.0,)))

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """As ResponseEncoder."""
        if isinstance(event, Started) and event.recording is not None:
            self.recording = event.recording
            self.n = len(event.recording.starts)
        return Encoder.feed(self, event, prompt)

    @property
    def usage(self) -> Duration:
        """Seconds, begun ones counted as whole."""
        return Duration(math.ceil(self.recording.seconds))

    def _refuse(self, error: LmiError) -> Response:
        return error_response(error)


@dataclass(slots=True, kw_only=True)
class JoinedReply(Reply):
    """A reply of one text, in the order of the pieces."""

    joined: Joined = field(default_factory=Joined)
    parts: list[str] = field(default_factory=list)

    def new_text(self, delta: Delta) -> str:
        """What of the text is to be sent now."""
        new = self.joined.take(delta.index, delta.text, ended=delta.finish is not None, spaced=self.recording.spaced)
        self.parts.append(new)
        return new

    @property
    def text(self) -> str:
        """All of it so far."""
        return "".join(self.parts)


@dataclass(slots=True, kw_only=True)
class TextReply(JoinedReply):
    """The text, as JSON or alone."""

    alone: bool

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        self.new_text(delta)
        return []

    def _close(self) -> list[bytes]:
        text = self.text
        if self.alone:
            self.content_type = PLAIN
            # OpenAI's ends with a line's end, too: a record must not be empty.
            return [text.encode() + b"\n"]
        return [encode(TranscriptBody(text, self.usage))]


@dataclass(slots=True, kw_only=True)
class TimedReply(Reply):
    """What is said when: as JSON, or as subtitles."""

    format: str
    temperature: float
    tokens: dict[int, list[Token]] = field(default_factory=dict)
    """By piece."""

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        self.tokens.setdefault(delta.index, []).extend(delta.tokens)
        return []

    def _close(self) -> list[bytes]:
        recording = self.recording
        pieces = [self.tokens.get(piece, []) for piece in range(self.n)]
        found = segments(recording, pieces, self.temperature)
        if self.format == "verbose_json":
            body = VerboseBody(
                task="translate" if self.translates else "transcribe",
                language=recording.language or None,
                duration=recording.seconds,
                text=text_of(found, spaced=recording.spaced),
                segments=tuple(found),
                usage=self.usage,
            )
            return [encode(body)]
        self.content_type = PLAIN
        return [(srt(found) or "\n").encode() if self.format == "srt" else vtt(found).encode()]


@dataclass(slots=True, kw_only=True)
class TranscriptStream(JoinedReply):
    """Events."""

    identity: Identity

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        new = self.new_text(delta)
        if not new:
            return []
        self.begun = True
        return [self._record("delta", choices=Chunk.choice(new), delta=new)]

    def _close(self) -> list[bytes]:
        self.begun = True
        reasons = {FINISH_WORDS[finish.reason] for finish in self.finishes.values()}
        reason = next((one for one in CUT if one in reasons), "stop")
        prompt, generated = self.prompt_tokens + (self.recording.audio_tokens or 0), self.generated_tokens
        usage = StreamUsage(prompt, generated, prompt + generated, prompt, generated)
        last = self._record("done", choices=Chunk.choice("", reason), text=self.text, usage=usage)
        return [last, DONE]

    def _record(self, event: str, **fields: object) -> bytes:
        kind = "translation" if self.translates else "transcription"
        identity = self.identity
        chunk = Chunk(
            type=f"transcript.text.{event}",
            id=identity.id,
            object=f"{kind}.chunk",
            created=identity.created,
            model=identity.model,
            **{"delta": UNSET, "text": UNSET, "usage": UNSET, **fields},  # type: ignore[arg-type]
        )
        return event_record(chunk)

    def _break_off(self, error: LmiError) -> list[bytes]:
        return [event_record(error_body(error)), DONE]
