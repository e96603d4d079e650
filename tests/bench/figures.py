"""What the runs of the bench come to.

Which tokens came is read off the text: it is compared with a reference, the text that the engine alone makes of the
same prompt, or else what the same server gives in the dialect's other form, whole or streamed. Decoding is greedy, so
both are the same but for near-ties; an answer with other words is `unproven`. All of that happens when the clock has
stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import msgspec

from .cpu import OTHERS
from .workloads import Workload

__all__ = ["GENERATOR", "GENERATOR_LIMIT", "Figures", "Measured", "Timed", "arrived", "figures", "quantile"]

GENERATOR = "load generator"
"""The name of its CPU time among those of the other processes."""
GENERATOR_LIMIT = 0.85
"""The share of a core from which on it is too near to its own bound."""


@dataclass(slots=True)
class Timed:
    """One answer: when it was asked for, when its records came, how many tokens it says it has, and its text; seconds
    on one clock."""

    sent: float
    records: list[float]
    tokens: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run of one layer."""

    layer: str
    workload: Workload
    connections: int
    asked: int
    """Tokens, in each request."""
    answers: Sequence[Timed]
    """In the prompts' order."""
    seconds: float
    cpu: dict[str, float]
    """What cpu.measured found."""

    @property
    def texts(self) -> list[str]:
        return [answer.text for answer in self.answers]


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a run comes to. Times are in seconds."""

    layer: str
    workload: str
    connections: int
    requests: int
    tokens: int
    lost: int
    """Tokens that were asked for and did not come."""
    unproven: int
    """Answers whose tokens are those that they say they have: there was no reference, or it has other words."""
    seconds: float
    ttft: tuple[float, float]
    """p50 and p99 of the time from a request to its first record."""
    gap: tuple[float, float]
    """The same of the time from one record to the next; (0, 0) where there is one only."""
    cpu: dict[str, float]
    """CPU seconds by process."""
    repeat: int = 0
    """Which of the runs with the same layer, workload and connections."""
    others: float = 0.0
    """How many cores were busy with something else meanwhile."""

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds

    @property
    def generator(self) -> float:
        """The share of a core that the load generator used; it has one thread."""
        return self.cpu.get(GENERATOR, 0.0) / self.seconds

    @property
    def generator_bound(self) -> bool:
        """Whether it was so busy that it may be what was measured."""
        return self.generator > GENERATOR_LIMIT


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so large a share of `values` does not exceed; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def arrived(answer: Timed, asked: int, reference: str | None) -> tuple[int, bool]:
    """How many tokens an answer has, and whether its text proves it.

    One whose text is the reference with pieces cut out has lost as large a share of the tokens, and one at least.
    """
    if reference is None:
        return answer.tokens, False
    if answer.text == reference:
        return answer.tokens, True
    rest = iter(reference)
    if not all(character in rest for character in answer.text):
        return answer.tokens, False
    lost = -(-asked * (len(reference) - len(answer.text)) // len(reference))
    return min(answer.tokens, asked - lost), True


def figures(measured: Measured, references: Sequence[str] = (), repeat: int = 0) -> Figures:
    """What a run comes to; `references` are texts for its prompts, as many as are known, from the first one on."""
    answers, asked, cpu, counts = measured.answers, measured.asked, measured.cpu, measured.workload.counts
    first = [answer.records[0] - answer.sent for answer in answers if answer.records]
    gaps = [after - before for answer in answers for before, after in pairwise(answer.records)]
    pairs = zip_longest(answers, references[: len(answers)])
    found = [(*arrived(answer, asked, reference), reference) for answer, reference in pairs]
    return Figures(
        layer=measured.layer,
        workload=measured.workload.name,
        connections=measured.connections,
        requests=len(answers),
        tokens=sum(tokens for tokens, _, _ in found),
        # One that has more than it should makes up for nothing that another lacks.
        lost=sum(max(0, asked - tokens) for tokens, _, _ in found),
        unproven=sum(not proven and not (counts and reference is None) for _, proven, reference in found),
        seconds=measured.seconds,
        ttft=(quantile(first, 0.5), quantile(first, 0.99)),
        gap=(quantile(gaps, 0.5), quantile(gaps, 0.99)),
        cpu={role: spent for role, spent in cpu.items() if role != OTHERS},
        repeat=repeat,
        others=cpu.get(OTHERS, 0.0) / measured.seconds,
    )
