"""What the core's outputs hold, as text/outputs.py reads it: EngineCoreOutput -> token ids, log-probabilities, ending.

Rows of log-probabilities come as arrays, a row a token; "the sampler puts the sampled logprob in first"
(vllm.v1.engine.logprobs, LogprobsProcessor), and others in the batch may have asked for more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..text.outputs import Output

__all__ = ["Known", "chosen", "entries", "told"]


class Known(NamedTuple):
    """What is known of a token at a position."""

    logprob: float
    rank: int


def chosen(rows: Any) -> Sequence[float]:
    """The log-probability of each token that was chosen."""
    values = rows.logprobs
    return (values.item(0),) if len(values) == 1 else values[:, 0].tolist()


def entries(rows: Any, wanted: int) -> list[Mapping[int, Known]]:
    """Of each position the chosen token, then the `wanted` likeliest; -1: all that are there."""
    return _entries(rows.logprob_token_ids.tolist(), rows.logprobs.tolist(), rows.sampled_token_ranks.tolist(), wanted)


def told(output: Any, wanted: int) -> Output:
    """What the first EngineCoreOutput of a request says of its prompt, with the `wanted` likeliest at each position."""
    cached = output.prefill_stats.num_cached_tokens if output.prefill_stats is not None else 0
    known: list[Mapping[int, Known] | None] = []
    if (tensors := output.new_prompt_logprobs_tensors) is not None:
        token_ids, logprobs, ranks = tensors[:3]
        known = [None, *_entries(token_ids.tolist(), logprobs.tolist(), ranks.tolist(), wanted)]
    return Output(prompt_logprobs=known, num_cached_tokens=max(0, cached))


def _entries(
    ids: list[list[int]], logprobs: list[list[float]], ranks: list[int], wanted: int
) -> list[Mapping[int, Known]]:
    found: list[Mapping[int, Known]] = []
    for row_ids, row, rank in zip(ids, logprobs, ranks, strict=True):
        last = len(row) if wanted < 0 else wanted + 1
        pairs = zip(row_ids[:last], row[:last], (rank, *range(1, last)), strict=False)
        # The chosen one may be among the likeliest: it is the same entry.
        found.append({token: Known(logprob, its_rank) for token, logprob, its_rank in pairs})
    return found
