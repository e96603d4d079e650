"""What every dialect's encoder is: events in, records out. A dialect says what its records are.

    Started   kept, by prompt, and its tokens counted
    Delta     _take --> records; with the finish of the last choice also _close --> the last ones
    Failed    nothing has been sent: _refuse --> a response;  else _break_off --> the last records
    a Delta that was cut off   what there is of its text, then an error

A choice is one sequence of one prompt, number `prompt * n + index`.

An encoder is data: one that is pickled before its first event gives the same bytes for the same events afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from ...model.errors import GenerationError, LmiError
from ...model.events import Delta, Event, Finish, FinishReason, Started
from ..base import JSON, Response

__all__ = ["FINISH_REASONS", "Encoder", "FixedResponse", "RenderError", "aborted", "around"]

FINISH_REASONS: dict[FinishReason, str] = {
    "eos": "eos_token",
    "stop": "stop_sequence",
    "length": "length",
    # No word of LMI's schema; its clients read the reason as text, and one that looks must not take the text for whole.
    "content_filter": "content_filter",
}
"""How the dialects of `inputs`, and djl_python's objects, call the end of a sequence. What is not in it, `abort`, is an
error."""

RenderError = Callable[[LmiError], Response]
"""The response for an error where nothing has been sent yet: a function of a module, or a partial of one."""


def aborted() -> GenerationError:
    """The error of a sequence that was cut off."""
    return GenerationError("the generation was cut off before its end")


def around(record: bytes, place: bytes = b'""') -> tuple[bytes, bytes]:
    """What stands before and after the last `place` in a record; encoded once where nothing else is new in others."""
    head, _, tail = record.rpartition(place)
    return head, tail


@dataclass(slots=True, kw_only=True)
class Encoder:
    """A ResponseEncoder (formatters/base.py), but for its records."""

    content_type: str = JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    failure: LmiError | None = None
    finished: bool = False
    n: int = 1
    """Choices of each prompt."""
    prompts: int = 1
    begun: bool = False
    """Whether a record of a stream has been returned."""
    started: dict[int, Started] = field(default_factory=dict)
    """By prompt."""
    finishes: dict[int, Finish] = field(default_factory=dict)
    """By choice."""
    prompt_tokens: int = 0
    """Of all prompts that have been processed: each counts once."""
    cached_tokens: int = 0
    """How many of them came from the cache."""

    @property
    def generated_tokens(self) -> int:
        """Of choices that have ended; what best_of discards has been generated too."""
        return sum([finish.generated_tokens + finish.discarded_tokens for finish in self.finishes.values()])

    @property
    def reasoning_tokens(self) -> int:
        """How many of them belong to reasoning."""
        return sum([finish.reasoning_tokens + finish.discarded_reasoning_tokens for finish in self.finishes.values()])

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """The records that `event` completes."""
        if isinstance(event, Delta):
            finish = event.finish
            if finish is None:
                return self._take(event, prompt)
            if finish.reason not in FINISH_REASONS:
                records = self.feed(msgspec.structs.replace(event, finish=None), prompt)
                return records + self._cut_off()
            self.finishes[prompt * self.n + event.index] = finish
            records = self._take(event, prompt)
            if self.finished or not self._is_last(finish):
                return records
            self.finished = True
            return records + self._close()
        if isinstance(event, Started):
            self.started[prompt] = event
            self.prompt_tokens += event.prompt_tokens
            self.cached_tokens += event.cached_tokens
            return []
        return self._fail(event.error)

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        """The records of what is new of one choice."""
        raise NotImplementedError

    def _is_last(self, finish: Finish) -> bool:
        """Whether the answer ends with a choice that has ended."""
        return len(self.finishes) == self.n * self.prompts

    def _close(self) -> list[bytes]:
        """The records after the last choice has ended."""
        raise NotImplementedError

    def _cut_off(self) -> list[bytes]:
        """The last records where a choice was cut off."""
        return self._fail(aborted())

    def _fail(self, error: LmiError) -> list[bytes]:
        """The last records where an error ends the answer."""
        self.finished, self.failure = True, error
        if self.begun:
            return self._break_off(error)
        answer = self._refuse(error)
        self.status, self.content_type, self.headers = answer.status, answer.content_type, answer.headers
        return [answer.body]

    def _refuse(self, error: LmiError) -> Response:
        """The response for an error where nothing has been sent yet."""
        raise NotImplementedError

    def _break_off(self, error: LmiError) -> list[bytes]:
        """The last records of a stream that has begun."""
        raise NotImplementedError


class FixedResponse(Encoder):
    """The encoder of an answer that is there already, and of a request that has not been parsed yet."""

    __slots__ = ()

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """Nothing comes of it."""
        return []
