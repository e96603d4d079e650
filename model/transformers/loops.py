"""Sequences that run each in a loop of its own of transformers' `generate`, for any model that has one.

    add --> a thread of the pool: model.generate(prompt, _Choosing, _Ended) --(row, token, ...)--> news

They take turns, a pass each: nothing is computed together, and a late one begins as soon as a thread is free.
"""

from __future__ import annotations

import functools
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import Any

from ..errors import GenerationError, LmiError
from .batching import News
from .sampling import Row

__all__ = ["Loops"]

log = logging.getLogger(__name__)


class Loops:
    """Runs at most `most` rows at once."""

    usage = 0.0
    """Caches grow with their sequences, without a bound of their own."""

    def __init__(self, model: Any, *, most: int) -> None:
        from transformers import GenerationConfig

        self._model = model
        # What the model says of sampling is each row's matter, and `generate` would add it to any configuration.
        model.generation_config = GenerationConfig()
        model.forward = _one_at_a_time(model.forward)
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="generate")
        self._rows: set[Row] = set()
        self.news: News = SimpleQueue()

    def alone(self) -> AbstractContextManager[None]:
        """Nothing: a pass waits for the one before in any case."""
        return nullcontext()

    def add(self, row: Row) -> None:
        """Queues a row."""
        self._rows.add(row)
        self._pool.submit(self._generate, row)

    def end(self, row: Row) -> None:
        """Forgets a row, whether it has ended by itself or not."""
        self._rows.discard(row)

    def check(self) -> None:
        """Each loop reports its own end."""

    def close(self) -> None:
        """Ends the loops, each at its next token."""
        self._rows.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _generate(self, row: Row) -> None:
        import torch

        if row not in self._rows:
            return
        try:
            ids = torch.tensor([row.ids], device=self._model.device)
            self._model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=row.max_tokens,
                eos_token_id=sorted(row.ends) or None, pad_token_id=0,
                logits_processor=[functools.partial(self._choose, row)],
                stopping_criteria=[functools.partial(self._ended, row)],
            )  # fmt: skip
        except BaseException as error:  # libraries in Rust panic with one
            log.exception("transformers' generate failed")
            failure = error if isinstance(error, LmiError) else GenerationError(f"it could not be computed: {error}")
            self.news.put([(row, 0, None, failure)])
        finally:
            self._rows.discard(row)

    def _choose(self, row: Row, input_ids: Any, scores: Any) -> Any:
        import torch

        token, entry = row.choose(scores[0].float())
        self.news.put([(row, token, entry, None)])
        return torch.zeros_like(scores).index_fill_(1, torch.tensor([token], device=scores.device), 1.0)

    def _ended(self, row: Row, input_ids: Any, scores: Any, **_: Any) -> Any:
        import torch

        return torch.full((1,), row not in self._rows, device=input_ids.device)


def _one_at_a_time(forward: Any) -> Any:
    """A model's forward pass, for several threads: some keep what they know of the latest pass in their modules."""
    lock = threading.Lock()

    @functools.wraps(forward)
    def locked(*arguments: Any, **named: Any) -> Any:
        with lock:
            return forward(*arguments, **named)

    return locked
