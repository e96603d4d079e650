"""Log-probabilities as events have them."""

from __future__ import annotations

import math
from typing import Any

from ...events import LOWEST_LOGPROB, TopToken
from ...text.tokenizer import Tokenizer

__all__ = ["finite", "likeliest"]


def likeliest(entry: Any, wanted: int, tokenizer: Tokenizer, with_bytes: bool = False) -> tuple[TopToken, ...]:
    """The `wanted` most likely tokens of a position; `entry` has what is known of each, by its id."""
    if not wanted:
        return ()
    best = sorted(entry.items(), key=lambda item: item[1].logprob, reverse=True)[:wanted]
    return tuple(
        TopToken(
            token_id,
            tokenizer.piece(token_id),
            finite(known.logprob),
            tokenizer.raw(token_id) if with_bytes else b"",
            token_id in tokenizer.special_ids,
        )
        for token_id, known in best
    )


def finite(logprob: float) -> float:
    """JSON has no infinity: LOWEST_LOGPROB stands for it."""
    return logprob if math.isfinite(logprob) and logprob > LOWEST_LOGPROB else LOWEST_LOGPROB
