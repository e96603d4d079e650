"""Sequences that run together, by transformers' continuous batching (ContinuousBatchingManager, of 5.x).

    add --request--> the manager's thread: paged cache, scheduler, passes --logits--> _Choosing --> Row.choose
    news <--(row, token, log-probabilities, error)---------------------------------------+

The manager chooses tokens for all requests alike; here each has logits processors of its own, which a single processor
of the manager's brings in: it chooses, and leaves the manager the logits of what was chosen. That needs passes that are
neither captured as graphs nor started ahead of the choice.

Which models the library can run so it does not say: a trial at start compares with a plain pass.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from ..errors import GenerationError, LmiError
from .sampling import LogProb, Row

__all__ = ["Batching", "News"]

PAGE = 256
"""Tokens a page of the cache holds, the library's default."""
CPU_BATCH = 512
"""Tokens a pass on a CPU computes at most: the attention mask has a row for each."""
UNLIKE = 0.1
"""By how much logits may differ from a plain pass's, in their standard deviations: half precision does by 0.02."""
TRIALS = ((5, 3, 9, 4, 8, 3, 5, 7, 6, 4), (9, 5, 4))
"""Prompts that are tried together at start."""

New = tuple[Row, int, "dict[int, LogProb] | None", "LmiError | None"]
News = SimpleQueue[list[New]]
"""What the passes bring: for each row its next token, which `Row.ids` has already, or an error."""


class Batching:
    """Runs at most `most` rows at once; raises whatever the library does for a model that it cannot run so."""

    def __init__(self, model: Any, *, most: int, context: int, batch_tokens: int, memory: float) -> None:
        """`memory` is the share of the device's free memory that the cache and its masks may take.

        Raises MemoryError where they cannot.
        """
        from transformers import GenerationConfig
        from transformers.generation.configuration_utils import ContinuousBatchingConfig
        from transformers.generation.continuous_batching.cb_logits_processors import (
            ContinuousBatchingLogitsProcessorList,
        )
        from transformers.generation.logits_process import LogitsProcessorList

        self._rows: dict[str, Row] = {}
        self._names: dict[Row, str] = {}
        self._count = 0
        self.news: News = SimpleQueue()
        pages = math.ceil(context / PAGE + 1) * most
        # All that could be used, or what there is room for.
        for blocks in (pages, None):
            config = ContinuousBatchingConfig(
                page_size=PAGE, num_blocks=blocks, max_memory_percent=memory, max_requests_per_batch=most,
                max_batch_tokens=batch_tokens if model.device.type == "cuda" else min(batch_tokens, CPU_BATCH),
                use_async_batching=False, use_cuda_graph=False, auto_switch_to_flash=False,
            )  # fmt: skip
            plain = GenerationConfig(do_sample=False, eos_token_id=-1)
            self._manager = model.init_continuous_batching(plain, config)
            choosing = ContinuousBatchingLogitsProcessorList(LogitsProcessorList())
            choosing.logits_processor.append(_choosing(self._rows, self.news))
            choosing.do_processing, choosing.tensors_required = True, 1
            self._manager.logit_processor = choosing
            try:
                self._manager.warmup()
                break
            except (MemoryError, ValueError) as error:
                # Where not even one page fits, it is a ValueError.
                if not isinstance(error, MemoryError) and "num_sectors" not in str(error):
                    raise
                if blocks is None:
                    raise MemoryError(str(error)) from None
        self.budget: int = self._manager.batch_processor.cache.num_blocks * PAGE
        # The manager's thread takes after the one that starts it: as a daemon it keeps no process from ending.
        starter = threading.Thread(target=self._manager.start, daemon=True)
        starter.start()
        starter.join()

    @property
    def usage(self) -> float:
        """How much of the cache is in use."""
        return min(1.0, sum(len(row.ids) for row in self._names) / self.budget)

    def try_out(self, model: Any) -> None:
        """Raises RuntimeError where two rows' logits, of their prompts and a step on, are not a plain pass's."""
        import torch

        seen: list[list[Any]] = [[] for _ in TRIALS]
        rows = [
            Row([*prompt], len(prompt), 2, processors=[partial(_remember, logits)])
            for prompt, logits in zip(TRIALS, seen, strict=True)
        ]
        for row in rows:
            self.add(row)
        while not all(row.complete for row in rows):
            self.check()
            with contextlib.suppress(Empty):
                for *_, error in self.news.get(timeout=0.1):
                    if error is not None:
                        raise error
        for row, logits in zip(rows, seen, strict=True):
            self.end(row)
            for step, found in enumerate(logits):
                with torch.inference_mode():
                    ids = torch.tensor([row.ids[: row.prompt + step]], device=model.device)
                    known = model(input_ids=ids).logits[0, -1].float()
                if not (known - found).abs().max() <= UNLIKE * known.std():
                    raise RuntimeError("its logits differ from those of a plain forward pass")

    def alone(self) -> AbstractContextManager[None]:
        """While it is open the manager computes nothing: its passes are not made for others beside them."""
        pause: AbstractContextManager[None] = self._manager.pause()
        return pause

    def add(self, row: Row) -> None:
        """Queues a row."""
        self._count += 1
        name = self._names[row] = str(self._count)
        self._rows[name] = row
        ends = sorted(row.ends) or -1
        self._manager.add_request(row.ids, request_id=name, max_new_tokens=row.max_tokens, eos_token_id=ends)

    def end(self, row: Row) -> None:
        """Forgets a row, whether it has ended by itself or not."""
        if (name := self._names.pop(row, None)) is not None:
            del self._rows[name]
            # Of one that has ended it would look for a cache in vain.
            if not row.complete:
                self._manager.cancel_request(name)

    def check(self) -> None:
        """Reads what the manager itself says of requests; raises GenerationError when it runs no more."""
        while (result := self._manager.get_result(timeout=0)) is not None:
            row = self._rows.get(result.request_id)
            if result.error is not None and row is not None:
                self.news.put([(row, 0, None, GenerationError(f"it could not be computed: {result.error}"))])
        if not self._manager.is_running():
            raise GenerationError("transformers' continuous batching has ended")

    def close(self) -> None:
        """Ends the manager's thread, and gives the model its own attention back."""
        self._manager.stop(block=True, timeout=10, hard_stop=True)


def _remember(logits: list[Any], _: Any, scores: Any) -> Any:
    logits.append(scores[0].clone())
    return scores


def _choosing(rows: dict[str, Row], news: News) -> Any:
    """The manager's logits processor; `rows` by the names of their requests."""
    import torch
    from transformers.generation.continuous_batching.cb_logits_processors import ContinuousBatchingLogitsProcessor

    class Choosing(ContinuousBatchingLogitsProcessor):  # type: ignore[misc]
        supported_kwargs: dict[str, type] = {}  # noqa: RUF012 - the library's own form
        ignored_kwargs: tuple[str, ...] = ()
        now: Sequence[Row | None] = ()

        def fill_defaults(self, int32_tensor: Any) -> None:
            int32_tensor.zero_()

        def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> Any:
            self.now = [rows.get(request.state.request_id) for request in requests_with_new_token]
            return torch.zeros(len(self.now), dtype=torch.int32)

        def __call__(self, scores: Any, tensor_arg: Any) -> Any:
            tokens: list[int] = scores.argmax(-1).tolist()
            found: list[New] = []
            for place, row in enumerate(self.now):
                if row is None:
                    continue
                entry, error = None, None
                if row.plain:
                    row.ids.append(tokens[place])
                else:
                    try:
                        tokens[place], entry = row.choose(scores[place])
                    except Exception as fault:  # noqa: BLE001 - becomes the request's error
                        error = GenerationError(f"the next token could not be chosen: {fault}")
                found.append((row, tokens[place], entry, error))
            news.put(found)
            chosen = torch.tensor(tokens, device=scores.device)[:, None]
            return torch.zeros_like(scores).scatter_(1, chosen, 1.0)

    return Choosing()
