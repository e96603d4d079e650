"""The sequences of the transformers engine's rolling batch, and those of them whose prompts are computed together."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .forward import Prompts
from .sampler import LogProb, SamplingState, likely

__all__ = ["Batch", "Entry", "Row", "lengths", "read_prefill", "units"]

Entry = Mapping[int, LogProb]


@dataclass(slots=True, eq=False)
class Row:
    """A sequence: what has been and what is to be generated."""

    number: int
    """By when it came; the newest makes room first."""
    group: object
    """Sequences of one group have the same prompt, which is computed once."""
    ids: list[int]
    """The prompt's tokens and the generated ones."""
    prompt: int
    """How many of them are the prompt's."""
    chooser: SamplingState = field(default_factory=lambda: SamplingState(temperature=0.0))
    prompt_logprobs: int | None = None
    prefill: list[Entry | None] = field(default_factory=list["Entry | None"])
    """The prompt's log-probabilities, where they were asked for; the first token has none."""
    entry: Entry | None = None
    """The newest token's log-probabilities; of a beam those of the tokens that may come next."""
    error: Exception | None = None
    candidates: int = 0
    """Of a beam, whose group is a search: how many of the tokens that may come next are wanted. None is chosen, see
    Rolling.follow, and all rows of the group go on in the same steps."""
    places: int = 1
    """How many rows will come of it after its first step."""

    @property
    def begun(self) -> bool:
        """Whether anything has been generated."""
        return len(self.ids) > self.prompt


@dataclass(slots=True)
class Batch:
    """Rows whose prompts are computed together; `sources` says which prompt is whose."""

    prompts: Prompts
    rows: list[Row]
    sources: list[int]

    def drop(self, gone: Collection[Row]) -> None:
        kept = [(row, source) for row, source in zip(self.rows, self.sources, strict=True) if row not in gone]
        self.rows = [row for row, _ in kept]
        self.sources = [source for _, source in kept]

    def replace(self, children: Mapping[Row, Sequence[Row]]) -> None:
        """Puts rows in the place of others, which have the same prompt."""
        pairs = zip(self.rows, self.sources, strict=True)
        replaced = [(one, source) for row, source in pairs for one in children.get(row, (row,))]
        self.rows = [row for row, _ in replaced]
        self.sources = [source for _, source in replaced]


def units(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows one by one, and those of a search together."""
    for _, unit in itertools.groupby(rows, lambda row: row.group if row.candidates else row):
        yield list(unit)


def lengths(rows: Iterable[Row]) -> list[int]:
    """How long the rows are that these are, or are going to be."""
    return [len(row.ids) for row in rows for _ in range(row.places)]


def read_prefill(row: Row, prompts: Prompts, logits: Any, before: int) -> None:
    """Adds the log-probabilities that these logits [1, columns, words] give to the prompt's tokens."""
    if before == 0:
        row.prefill = [None]
    targets = prompts.ids[0, before + 1 : prompts.done + 1].to(logits.device)
    if len(targets):
        logprobs = logits[0, : len(targets)].float().log_softmax(-1)
        entries = likely(logprobs, targets, row.prompt_logprobs or 0)
        ranks = (logprobs >= logprobs.gather(-1, targets[:, None])).sum(-1)
        for entry, token, rank in zip(entries, targets.tolist(), ranks.tolist(), strict=True):
            entry[token].rank = rank
        row.prefill += entries
