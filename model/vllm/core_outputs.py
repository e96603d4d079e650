"""What the core sends, as text/outputs.py reads it: bytes -> EngineCoreOutput -> token ids, log-probabilities, ending.

    bytes --vLLM's decoder, `leave_rows`--> EngineCoreOutput with Rows --chosen, entries--> numbers

Log-probabilities are arrays, a row a token; "the sampler puts the sampled logprob in first" (vllm.v1.engine.logprobs,
LogprobsProcessor), and others in the batch may have asked for more. vLLM's decoder makes three numpy arrays of them for
each token, which takes 4 µs, as long as all that follows; here they stay bytes, of which most requests need four.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from ..text.outputs import Prompt
from .internals import part

__all__ = ["Known", "Rows", "chosen", "entries", "leave_rows", "told"]

_FLOAT = struct.Struct("<f")


class Rows:
    """vLLM's LogprobsLists as it is sent: ids and log-probabilities by likeliness, ranks of the chosen tokens.

    Each is an array's dtype, as numpy names it, its shape and its bytes (vllm.v1.serial_utils, `_encode_ndarray`).
    """

    __slots__ = ("ids", "logprobs", "ranks")

    def __init__(self, ids: Any, logprobs: Any, ranks: Any) -> None:
        self.ids = ids
        self.logprobs = logprobs
        self.ranks = ranks


class Known(NamedTuple):
    """What is known of a token at a position."""

    logprob: float
    rank: int


def leave_rows(decoder: Any) -> None:
    """Lets a client's decoder (vLLM's MsgpackDecoder of EngineCoreOutputs) leave log-probabilities as they come."""
    others = decoder.dec_hook

    def decode(kind: type, sent: Any) -> Any:
        if kind is not Rows:
            return others(kind, sent)
        rows = Rows(*sent[:3])
        for array in sent[:3]:
            if isinstance(array[2], int):
                # A large one comes in a part of the message of its own.
                array[2] = decoder.aux_buffers[array[2]]
        return rows

    decoder.decoder = msgspec.msgpack.Decoder(_outputs(), ext_hook=decoder.ext_hook, dec_hook=decode)


@cache
def _outputs() -> Any:
    """EngineCoreOutputs with Rows in them."""
    output: Any = part("vllm.v1.engine:EngineCoreOutput")
    outputs: Any = part("vllm.v1.engine:EngineCoreOutputs")
    with_rows: Any = msgspec.defstruct("OutputWithRows", [("new_logprobs", Rows | None, None)], bases=(output,))
    several: Any = ("outputs", list[with_rows], msgspec.field(default_factory=list))
    return msgspec.defstruct("OutputsWithRows", [several], bases=(outputs,))


def chosen(rows: Rows) -> Sequence[float]:
    """The log-probability of each token that was chosen."""
    dtype, shape, data = rows.logprobs
    if shape[0] == 1 and dtype == "<f4":
        return _FLOAT.unpack_from(data)
    values: list[float] = _array(rows.logprobs)[:, 0].tolist()
    return values


def entries(rows: Rows, wanted: int) -> list[Mapping[int, Known]]:
    """Of each position the chosen token, then the `wanted` likeliest; -1: all that are there."""
    return _entries(_array(rows.ids), _array(rows.logprobs), _array(rows.ranks), wanted)


def told(output: Any, wanted: int) -> Prompt:
    """What the first EngineCoreOutput of a request says of its prompt, with the `wanted` likeliest at each position."""
    cached = output.prefill_stats.num_cached_tokens if output.prefill_stats is not None else 0
    known: list[Mapping[int, Known] | None] = []
    if (tensors := output.new_prompt_logprobs_tensors) is not None:
        token_ids, logprobs, ranks = tensors[:3]
        known = [None, *_entries(token_ids, logprobs, ranks, wanted)]
    return Prompt(known, max(0, cached))


def _array(sent: Any) -> Any:
    import numpy as np

    dtype, shape, data = sent
    return np.frombuffer(data, dtype).reshape(shape)


def _entries(ids: Any, logprobs: Any, ranks: Any, wanted: int) -> list[Mapping[int, Known]]:
    """Of numpy's arrays or torch's tensors."""
    found: list[Mapping[int, Known]] = []
    for row_ids, row, rank in zip(ids.tolist(), logprobs.tolist(), ranks.tolist(), strict=True):
        last = len(row) if wanted < 0 else wanted + 1
        pairs = zip(row_ids[:last], row[:last], (rank, *range(1, last)), strict=False)
        # The chosen one may be among the likeliest: it is the same entry.
        found.append({token: Known(logprob, its_rank) for token, logprob, its_rank in pairs})
    return found
