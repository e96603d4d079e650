"""What the answers with vectors or scores share: vectors in the order of the inputs, in whatever order they come.

    Started, Delta(vector) of each input  -->  one JSON body when the last one is there

Each vector is encoded when it comes. An input that fails ends its request: no answer has a place for its error.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from ...model.errors import GenerationError, LmiError
from ...model.events import Delta
from ..base import Response
from .encoder import Encoder, RenderError

__all__ = ["EmbeddingEncoder", "numbers"]


def numbers(vector: bytes) -> tuple[float, ...]:
    """The numbers of `Delta.vector`."""
    return struct.unpack(f"<{len(vector) // 4}f", vector)


@dataclass(slots=True, kw_only=True)
class EmbeddingEncoder(Encoder):
    """A ResponseEncoder, but for the form of its body; `prompts` is how many inputs there are."""

    refuse: RenderError
    """The dialect's response for an error."""
    entries: dict[int, bytes] = field(default_factory=dict)
    """By input."""

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        if delta.finish is None:
            return []
        if not delta.vector:
            return self._cut_off()
        self.entries[prompt] = self.entry(delta.vector, prompt)
        return []

    def _close(self) -> list[bytes]:
        return [self.body([self.entries[number] for number in range(self.prompts)])]

    def entry(self, vector: bytes, prompt: int) -> bytes:
        """What the body has for one input: JSON, or what `body` makes JSON of."""
        return vector

    def body(self, entries: list[bytes]) -> bytes:
        """The whole body."""
        raise NotImplementedError

    def _cut_off(self) -> list[bytes]:
        return self._fail(GenerationError("the vector was cut off before its end"))

    def _refuse(self, error: LmiError) -> Response:
        return self.refuse(error)
