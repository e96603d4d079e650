"""What the bench asks for, and what it reads in the answers.

A workload is one dialect's request, streamed or whole, for exactly so many tokens; every request has a prompt of its
own, so that none finds another's in the prefix cache.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

__all__ = ["WORKLOADS", "Figures", "Timed", "Workload", "figures", "prompts", "quantile"]

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of request."""

    name: str
    dialect: str
    stream: bool
    logprobs: bool
    """Whether the answer shows log-probabilities, which the engine alone must then compute too."""
    body: Callable[[str, int], Body]
    mark: bytes
    """What stands exactly once in every record that brings a token."""
    tokens: Callable[[bytes, int], int]
    """How many tokens a body has, given how many it should have."""


def prompts(number: int, first: int = 0) -> list[str]:
    """So many prompts of the same length that differ from their first token on."""
    return [f"{index:06d} is a number. Count up from it." for index in range(first, first + number)]


def _lmi(prompt: str, tokens: int, stream: bool) -> Body:
    parameters = {"max_new_tokens": tokens, "ignore_eos_token": True, "details": stream}
    return {"inputs": prompt, "parameters": parameters, "stream": stream}


def _chat(prompt: str, tokens: int, stream: bool) -> Body:
    asked: Body = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": stream,
    }
    return {**asked, "stream_options": {"include_usage": True}} if stream else asked


def _lines(body: bytes, expected: int) -> int:
    documents = [json.loads(line.removeprefix(b"data: ")) for line in body.splitlines() if line.strip()]
    return sum("token" in document for document in documents)


def _text(body: bytes, expected: int) -> int:
    """A whole LMI answer does not count its tokens: it has all of them, or is an error."""
    return expected if json.loads(body).get("generated_text") else 0


def _usage(body: bytes, expected: int) -> int:
    return int(json.loads(body)["usage"]["completion_tokens"])


def _streamed_usage(body: bytes, expected: int) -> int:
    events = [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]
    if events[-1] != b"[DONE]":
        return 0
    return int(json.loads(events[-2])["usage"]["completion_tokens"])


WORKLOADS: tuple[Workload, ...] = (
    Workload("LMI stream, log_prob", "lmi", True, True, lambda text, n: _lmi(text, n, True), b'{"token":', _lines),
    Workload("LMI whole", "lmi", False, False, lambda text, n: _lmi(text, n, False), b"generated_text", _text),
    Workload("chat stream", "openai", True, False, lambda text, n: _chat(text, n, True), b'"delta":', _streamed_usage),
    Workload("chat whole", "openai", False, False, lambda text, n: _chat(text, n, False), b'"usage":', _usage),
)


@dataclass(slots=True)
class Timed:
    """One answer: when it was asked for, when its records came, how many tokens it has; seconds on one clock."""

    sent: float
    records: list[float]
    tokens: int


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a run comes to. Times are in seconds."""

    layer: str
    workload: str
    connections: int
    requests: int
    tokens: int
    lost: int
    """Tokens that were asked for and did not come."""
    seconds: float
    ttft: tuple[float, float]
    """p50 and p99 of the time from a request to its first record."""
    gap: tuple[float, float]
    """The same of the time from one record to the next; (0, 0) where there is one only."""
    cpu: dict[str, float]
    """CPU seconds by process."""

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so large a share of `values` does not exceed; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def figures(
    layer: str,
    workload: Workload,
    connections: int,
    *,
    asked: int,
    answers: Sequence[Timed],
    seconds: float,
    cpu: dict[str, float],
) -> Figures:
    """The figures of answers to requests that asked for `asked` tokens each."""
    first = [answer.records[0] - answer.sent for answer in answers if answer.records]
    gaps = [after - before for answer in answers for before, after in pairwise(answer.records)]
    tokens = sum(answer.tokens for answer in answers)
    return Figures(
        layer=layer,
        workload=workload.name,
        connections=connections,
        requests=len(answers),
        tokens=tokens,
        lost=asked * len(answers) - tokens,
        seconds=seconds,
        ttft=(quantile(first, 0.5), quantile(first, 0.99)),
        gap=(quantile(gaps, 0.5), quantile(gaps, 0.99)),
        cpu=cpu,
    )
