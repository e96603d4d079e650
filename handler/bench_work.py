"""What the bench asks for, and what it reads in the answers.

A workload is one dialect's request, streamed or whole, for exactly so many tokens; every request has a prompt of its
own, so that none finds another's in the prefix cache.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from .bench_cpu import OTHERS

__all__ = ["GENERATOR", "WORKLOADS", "Figures", "Timed", "Workload", "figures", "prompts", "quantile"]

Body = dict[str, Any]

GENERATOR = "load generator"
"""The name of its CPU time among those of the other processes."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of request."""

    name: str
    dialect: str
    stream: bool
    logprobs: bool
    """Whether the answer shows log-probabilities, which the engine alone must then compute too."""
    body: Callable[[str, int], Body]
    mark: re.Pattern[bytes]
    """What is found exactly once in every record that brings text."""
    tokens: Callable[[bytes, int], int]
    """How many tokens a body has, given how many it should have; anything that is no such answer has none."""


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


def _documents(body: bytes) -> list[Body]:
    """The objects of a stream of lines or events; of one that is broken, those before the break."""
    found: list[Body] = []
    for line in body.splitlines():
        text = line.removeprefix(b"data:").strip()
        if not text or text == b"[DONE]":
            continue
        try:
            document = json.loads(text)
        except ValueError:
            break
        if isinstance(document, dict):
            found.append(document)
    return found


def _lines(body: bytes, expected: int) -> int:
    return sum("token" in document and "error" not in document for document in _documents(body))


def _text(body: bytes, expected: int) -> int:
    """A whole LMI answer does not count its tokens: it has all of them, or is an error."""
    (document,) = _documents(body) or [{}]
    return expected if document.get("generated_text") and "error" not in document else 0


def _usage(body: bytes, expected: int) -> int:
    (document,) = _documents(body) or [{}]
    return int((document.get("usage") or {}).get("completion_tokens") or 0)


def _streamed_usage(body: bytes, expected: int) -> int:
    """By the usage, if every chunk is whole and the end is there; by the chunks, where a server sends no usage."""
    documents = _documents(body)
    if not body.rstrip().endswith(b"data: [DONE]") or len(documents) != body.count(b"data:") - 1:
        return 0
    usage = next((document["usage"] for document in documents if document.get("usage")), None)
    return int(usage["completion_tokens"]) if usage else len(CONTENT.findall(body))


TOKEN = re.compile(rb'\{"token":')
CONTENT = re.compile(rb'"content": ?"(?!")')
"""Not of a chunk that only has a role."""
GENERATED = re.compile(rb'"generated_text":')
USAGE = re.compile(rb'"usage":')

WORKLOADS: tuple[Workload, ...] = (
    Workload("LMI stream, log_prob", "lmi", True, True, lambda text, n: _lmi(text, n, True), TOKEN, _lines),
    Workload("LMI whole", "lmi", False, False, lambda text, n: _lmi(text, n, False), GENERATED, _text),
    Workload("chat stream", "openai", True, False, lambda text, n: _chat(text, n, True), CONTENT, _streamed_usage),
    Workload("chat whole", "openai", False, False, lambda text, n: _chat(text, n, False), USAGE, _usage),
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
        """The share of a core that the load generator used."""
        return self.cpu.get(GENERATOR, 0.0) / self.seconds


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
    """The figures of answers to requests that asked for `asked` tokens each. `cpu` is what `measured` found."""
    used = {role: spent for role, spent in cpu.items() if role != OTHERS}
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
        cpu=used,
        others=cpu.get(OTHERS, 0.0) / seconds,
    )
