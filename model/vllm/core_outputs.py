"""What the core sends, as sequence.py reads it: bytes -> EngineCoreOutput -> token ids, log-probabilities, ending.

    bytes --vLLM's decoder, `leave_rows`--> EngineCoreOutput with Rows --chosen, entries--> numbers

Log-probabilities are arrays, a row a token; "the sampler puts the sampled logprob in first" (vllm.v1.engine.logprobs,
LogprobsProcessor), and others in the batch may have asked for more. vLLM's decoder makes three numpy arrays of them for
each token, which takes 4 µs, as long as all that follows; here they stay bytes, of which most requests need four. A
vLLM that sends them otherwise is read by its own decoder.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from ..errors import one_line
from .library.parts import part

__all__ = ["Known", "Prompt", "Rows", "chosen", "entries", "leave_rows", "prompt_of"]

log = logging.getLogger(__name__)

_FLOAT = struct.Struct("<f")

ROWS = 32
"""Positions of a prompt whose arrays become numbers at once."""


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


class Prompt(NamedTuple):
    """What the core tells of a request's prompt."""

    logprobs: Iterable[Mapping[int, Known] | None] = ()
    """Of each token what is known of it and of the likeliest, by token id; None for the first one. May be made as it is
    read, once; an empty tuple where it is not wanted."""
    cached_tokens: int = 0


def leave_rows(decoder: Any) -> None:
    """Lets a client's decoder (vLLM's MsgpackDecoder of EngineCoreOutputs) leave log-probabilities as they come, if
    what it then reads is what it has read before; else it is left alone, with a line in the log. None: there is none.
    """
    own = getattr(decoder, "decoder", None)
    try:
        messages = _sample()
        before = [_known(decoder.decode(message)) for message in messages]
        decoder.decoder = _row_decoder(decoder)
        if [_known(decoder.decode(message)) for message in messages] != before:
            raise ValueError("other values than vLLM's own decoder has")
    except Exception as error:  # noqa: BLE001 - of private parts, of which there is a slower, public way
        if own is not None:
            decoder.decoder = own
        why = f"{type(error).__name__}: {one_line(str(error))}"
        log.warning("vLLM's own decoder reads the core's outputs, which is slower: they cannot be read here (%s)", why)


def _sample() -> list[Any]:
    """Messages of the core's, as its encoder makes them: log-probabilities within the message, and in parts of it."""
    import numpy as np

    output, outputs = part("vllm.v1.engine:EngineCoreOutput"), part("vllm.v1.engine:EngineCoreOutputs")
    finished, lists = part("vllm.v1.engine:FinishReason"), part("vllm.v1.outputs:LogprobsLists")
    encode = part("vllm.v1.serial_utils:MsgpackEncoder")().encode
    messages = []
    for tokens, likeliest in ((1, 1), (3, 200)):
        ids = np.arange(tokens * likeliest, dtype=np.int32).reshape(tokens, likeliest)
        rows = lists(ids, -ids.astype(np.float32) / 7, np.arange(tokens, dtype=np.int32) + 1)
        one = output(
            request_id="0.0",
            new_token_ids=list(range(tokens)),
            new_logprobs=rows,
            stop_reason="a",
            finish_reason=finished.STOP,
        )
        messages.append(encode(outputs(outputs=[one])))
    return messages


def _known(outputs: Any) -> list[Any]:
    """What is read of outputs."""
    return [
        (one.request_id, one.new_token_ids, one.finish_reason, one.stop_reason, [*chosen(one.new_logprobs)],
         entries(one.new_logprobs, -1))
        for one in outputs.outputs
    ]  # fmt: skip


def _row_decoder(decoder: Any) -> Any:
    """What decodes as `decoder` does, but for Rows."""
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

    return msgspec.msgpack.Decoder(_outputs(), ext_hook=decoder.ext_hook, dec_hook=decode)


@cache
def _outputs() -> Any:
    """EngineCoreOutputs with Rows in them."""
    output: Any = part("vllm.v1.engine:EngineCoreOutput")
    outputs: Any = part("vllm.v1.engine:EngineCoreOutputs")
    with_rows: Any = msgspec.defstruct("OutputWithRows", [("new_logprobs", Rows | None, None)], bases=(output,))
    several: Any = ("outputs", list[with_rows], msgspec.field(default_factory=list))
    return msgspec.defstruct("OutputsWithRows", [several], bases=(outputs,))


def chosen(rows: Any) -> Sequence[float]:
    """The log-probability of each token that was chosen, of Rows or vLLM's own LogprobsLists."""
    if type(rows) is Rows:
        dtype, shape, data = rows.logprobs
        if shape[0] == 1 and dtype == "<f4":
            return _FLOAT.unpack_from(data)
    logprobs = _array(rows.logprobs) if type(rows) is Rows else rows.logprobs
    values: list[float] = logprobs[:, 0].tolist()
    return values


def entries(rows: Any, wanted: int) -> list[Mapping[int, Known]]:
    """Of each position the chosen token, then the `wanted` likeliest; -1: all that are there. `rows` as in `chosen`."""
    if type(rows) is not Rows:
        return _entries(rows.logprob_token_ids, rows.logprobs, rows.sampled_token_ranks, wanted)
    return _entries(_array(rows.ids), _array(rows.logprobs), _array(rows.ranks), wanted)


def prompt_of(output: Any, wanted: int | None, tokens: int) -> Prompt:
    """What the first EngineCoreOutput of a request says of its prompt of so many tokens, with the `wanted` likeliest at
    each position; None: no log-probabilities are wanted.
    """
    cached = output.prefill_stats.num_cached_tokens if output.prefill_stats is not None else 0
    known: Iterable[Mapping[int, Known] | None] = ()
    if wanted is not None:
        if (tensors := output.new_prompt_logprobs_tensors) is not None:
            token_ids, logprobs, ranks = tensors[:3]
            known = _prompt_entries(token_ids, logprobs, ranks, wanted)
        elif tokens == 1:
            # There is nothing before it that could tell how likely it is: model runner V2 sends nothing then.
            known = (None,)
    return Prompt(known, max(0, cached))


def _prompt_entries(ids: Any, logprobs: Any, ranks: Any, wanted: int) -> Iterator[Mapping[int, Known] | None]:
    """Of each of the prompt's tokens, some rows at a time: all that hold the interpreter together."""
    yield None
    for start in range(0, len(ids), ROWS):
        rows = slice(start, start + ROWS)
        yield from _entries(ids[rows], logprobs[rows], ranks[rows], wanted)


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
