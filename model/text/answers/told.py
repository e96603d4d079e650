"""What has been told of an answer so far, beside what is known of it in the end."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...events import CallDelta

__all__ = ["Told", "ends_with", "rest_of"]


@dataclass(slots=True)
class Told:
    """What parsers have made of a stream so far."""

    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    arguments: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """Of each call that has begun, by its index."""

    def rest_of(self, call: CallDelta) -> CallDelta | None:
        """What of a whole call has not been told yet; None where nothing has not, or it goes on in another way."""
        if call.index not in self.arguments:
            return call
        begun = "".join(self.arguments[call.index])
        rest = call.arguments.removeprefix(begun)
        return CallDelta(call.index, arguments=rest) if rest and call.arguments.startswith(begun) else None


def ends_with(text: str, shown: str) -> bool:
    """Whether the text of an answer ends with what has been made of it: nothing that came later is missing."""
    shown = shown.strip()
    return text.rstrip().endswith(shown) if shown else not text.strip()


def rest_of(whole: str, told: str) -> str:
    """What of the text of an answer has not been told yet. Parsers may have stripped white space."""
    if told not in whole:
        told = told.strip()
    at = whole.find(told)
    return whole[at + len(told) :] if at >= 0 else ""
