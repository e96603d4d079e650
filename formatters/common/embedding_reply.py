"""What the answers with vectors or scores share: vectors in the order of the inputs, in whatever order they come.

    Started, Delta(vector) of each input  -->  one JSON body when the last one is there

Each vector is encoded when it comes. An input that fails ends its request: no answer has a place for its error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from ...model.errors import GenerationError, LmiError
from ...model.events import Delta, Event, Failed, Started
from ..base import Response
from .encoder import EncoderState

__all__ = ["EmbeddingEncoder", "numbers"]


def numbers(vector: bytes) -> tuple[float, ...]:
    """The numbers of `Delta.vector`."""
    return struct.unpack(f"<{len(vector) // 4}f", vector)


@dataclass(slots=True, kw_only=True)
class EmbeddingEncoder(EncoderState):
    """A ResponseEncoder, but for the form of its body."""

    count: int
    """How many inputs there are."""
    refuse: Callable[[LmiError], Response]
    """The dialect's response for an error."""
    prompt_tokens: int = 0
    entries: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """By input."""

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """The body, with the last vector."""
        if isinstance(event, Started):
            self.prompt_tokens += event.prompt_tokens
            return []
        if isinstance(event, Failed):
            return self._fail(event.error)
        return self._take(event, prompt)

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        if delta.finish is None:
            return []
        if delta.finish.reason == "abort" or not delta.vector:
            return self._fail(GenerationError("the vector was cut off before its end"))
        self.entries[prompt] = self.entry(delta.vector, prompt)
        if len(self.entries) < self.count:
            return []
        body = self.body([self.entries[number] for number in range(self.count)])
        self.finished = True
        return [body]

    def entry(self, vector: bytes, prompt: int) -> bytes:
        """What the body has for one input, as JSON."""
        raise NotImplementedError

    def body(self, entries: list[bytes]) -> bytes:
        """The whole body."""
        raise NotImplementedError

    def _fail(self, error: LmiError) -> list[bytes]:
        answer = self.refuse(error)
        self.finished, self.failure = True, error
        self.status, self.content_type = answer.status, answer.content_type
        return [answer.body]
