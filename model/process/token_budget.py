"""`option.max_tokens_in_flight`: how many tokens all running generations may come to, counted in the engine's process.

Only there is it known how many tokens a prompt has. A generation's tokens are those of its prompt and those that it may
generate, once for each of its sequences, and the entries of its prompt's log-probabilities; they count from its start
to its end.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import OverloadedError, ParameterError
from ..events import Delta, EngineEvent, Failed

__all__ = ["TokenBudget"]

OPTION = "option.max_tokens_in_flight"


class TokenBudget:
    """The tokens of what runs; for one thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tokens: dict[int, int] = {}
        self.total = 0

    def admit(self, number: int, tokens: int) -> None:
        """Counts a generation in; raises OverloadedError, and ParameterError for one that could never be."""
        if tokens > self._limit:
            raise ParameterError(
                f"prompt and response may come to {tokens} tokens, expected at most {self._limit} ({OPTION}); "
                "shorten the prompt or ask for fewer tokens"
            )
        if self.total + tokens > self._limit:
            raise OverloadedError(
                f"{self.total} tokens are in flight and this request may come to {tokens}, expected at most "
                f"{self._limit} together ({OPTION})"
            )
        self._tokens[number] = tokens
        self.total += tokens

    def drop(self, numbers: Iterable[int]) -> None:
        """Counts generations out; others are ignored."""
        for number in numbers:
            self.total -= self._tokens.pop(number, 0)

    def release_ended(self, events: Iterable[tuple[int, EngineEvent]]) -> None:
        """Counts out what ends with one of the events."""
        for number, event in events:
            if (type(event) is Delta and event.finish is not None and event.finish.last) or type(event) is Failed:
                self.total -= self._tokens.pop(number, 0)
