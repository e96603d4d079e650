"""The answers, in the form of vLLM's server (entrypoints/serve/tokenize/protocol.py)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ...model.errors import GenerationError, LmiError
from ...model.events import Delta, Event, Started
from ..base import encode
from ..common.encoder import EncoderState
from ..openai.reply import error_response

__all__ = ["Detokenized", "DetokenizedEncoder", "Tokenized", "TokenizedEncoder"]


class Tokenized(msgspec.Struct, frozen=True):
    """A prompt's tokens."""

    count: int
    max_model_len: int
    """The longest prompt plus answer, in tokens."""
    tokens: list[int]
    token_strs: list[str] | None
    """What the vocabulary calls them, where that was asked for."""


class Detokenized(msgspec.Struct, frozen=True):
    """What tokens stand for, special ones included."""

    prompt: str


@dataclass(slots=True, kw_only=True)
class _Encoder(EncoderState):
    """A ResponseEncoder, but for its body."""

    started: Started | None = None

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """The body, when the prompt is told."""
        if isinstance(event, Started):
            self.started = event
            return []
        if not isinstance(event, Delta):
            return self._fail(event.error)
        if self.started is None or event.finish is None or event.finish.reason != "length":
            return self._fail(GenerationError("the prompt's tokens were not told"))
        self.finished = True
        return [encode(self.body(self.started))]

    def body(self, started: Started) -> msgspec.Struct:
        """The whole body."""
        raise NotImplementedError

    def _fail(self, error: LmiError) -> list[bytes]:
        answer = error_response(error)
        self.finished, self.failure, self.status = True, error, answer.status
        return [answer.body]


@dataclass(slots=True, kw_only=True)
class TokenizedEncoder(_Encoder):
    """Tells the tokens."""

    names: bool

    def body(self, started: Started) -> Tokenized:
        """Their ids, and their names where these are wanted."""
        tokens = started.prefill
        names = [token.text for token in tokens] if self.names else None
        return Tokenized(started.prompt_tokens, started.context, [token.id for token in tokens], names)


@dataclass(slots=True, kw_only=True)
class DetokenizedEncoder(_Encoder):
    """Tells the text."""

    def body(self, started: Started) -> Detokenized:
        """It, special tokens included."""
        return Detokenized(started.text)
