"""The sequences of one generation, as the backend on vLLM keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..events import EngineEvent
from ..generation import Generation
from .response_limit import too_long, weight

__all__ = ["Group"]


@dataclass(slots=True, eq=False)
class Group:
    """What is the same for all of them, and which still run."""

    number: int
    prompt_ids: list[int]
    stream: bool
    tokens: bool
    echo: bool
    """Whether the prompt as text is wanted."""
    prompt_logprobs: int | None
    request_id: str = "-"
    running: set[str] = field(default_factory=set[str])
    """By the names that vLLM knows them by."""
    started: bool = False
    held: list[EngineEvent] = field(default_factory=list["EngineEvent"])
    """What other sequences have brought before the first one, which alone tells of the prompt (vLLM's)."""
    weight: int = 0
    """What each token counts for `size`."""
    longest: int = 0
    """What the answer may come to, where it is not streamed (response_limit.py)."""
    size: int = 0

    @classmethod
    def of(cls, number: int, prompt_ids: list[int], generation: Generation, longest: int) -> Group:
        """The group of a generation none of whose sequences has been started."""
        return cls(
            number,
            prompt_ids,
            generation.stream,
            generation.tokens,
            generation.echo,
            generation.sampling.prompt_logprobs,
            generation.request_id,
            weight=weight(generation),
            longest=longest,
        )

    def grow(self, tokens: int) -> None:
        """Counts new tokens; raises ParameterError where the answer becomes too long."""
        if not self.stream:
            self.size += self.weight * tokens
            if self.size > self.longest:
                raise too_long(self.size, self.longest)
