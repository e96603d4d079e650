"""A seed of a request's own, whatever else is in its batch, on vLLM's CPU build.

The CPU sampler of vLLM 0.23.0 draws without any request's seed where one request of the batch has none, a greedy one
too (vllm/v1/sample/ops/topk_topp_sampler.py, forward_cpu). The same class's native way, which other platforms use,
minds each request's. Workers with such a sampler are told to use that one; later versions of vLLM need nothing.
"""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["EXTENSION", "SeedKeeper", "keep_seeds"]

log = logging.getLogger(__name__)

EXTENSION = f"{__name__}.SeedKeeper"
"""For vLLM's `worker_extension_cls`: its methods become the worker's."""


class SeedKeeper:
    """What a worker can be asked (vLLM's collective_rpc)."""

    model_runner: Any

    def lmi_keep_seeds(self) -> bool:
        """Whether the worker's sampler had to be told."""
        sampler = getattr(getattr(self.model_runner, "sampler", None), "topk_topp_sampler", None)
        if sampler is None or not forgets_seeds(sampler.forward):
            return False
        sampler.forward = sampler.forward_native
        return True


def forgets_seeds(draw: Any) -> bool:
    """Whether `draw` of a batch of two, one of them with a seed, gives that one different tokens from time to time."""
    import torch

    def drawn() -> int:
        tokens, _ = draw(torch.zeros(2, 1 << 16), {0: torch.Generator().manual_seed(1)}, None, None)
        return int(tokens[0])

    # What requests without a seed draw is not to depend on this.
    with torch.random.fork_rng(devices=[]):
        first = drawn()
        return any(drawn() != first for _ in range(2))


def keep_seeds(llm: Any) -> None:
    """Tells the workers of an engine that was started with EXTENSION."""
    if any(llm.collective_rpc("lmi_keep_seeds")):
        log.info("this vLLM's CPU sampler forgets seeds in mixed batches: its native one is used instead")
