"""The answers, in the form of vLLM's server (entrypoints/serve/tokenize/protocol.py)."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ...model.errors import GenerationError, LmiError
from ...model.events import Delta, Started
from ..base import Response, encode
from ..common.encoder import Encoder
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
class _Encoder(Encoder):
    """A ResponseEncoder, but for its body."""

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        return []

    def _close(self) -> list[bytes]:
        if 0 not in self.started or self.finishes[0].reason != "length":
            return self._cut_off()
        return [encode(self.body(self.started[0]))]

    def body(self, started: Started) -> msgspec.Struct:
        """The whole body."""
        raise NotImplementedError

    def _cut_off(self) -> list[bytes]:
        return self._fail(GenerationError("the prompt's tokens were not told"))

    def _refuse(self, error: LmiError) -> Response:
        return error_response(error)


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
