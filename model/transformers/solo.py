"""Rows whose caches are of any kind, each by itself: for models whose sequences cannot be computed together.

It is a pass for each row, and the rolling batch (scheduler.py) sees no difference.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from .forward import Forward, Prompts, new_cache

__all__ = ["Solo"]


class _Each(Prompts):
    """Several prompts, with a cache each."""

    def __init__(self, prompts: Sequence[Sequence[int]], forward: Forward) -> None:
        self._parts = [Prompts([prompt], new_cache(forward.model), forward.device) for prompt in prompts]
        super().__init__(prompts, None, forward.device)

    @property
    def caches(self) -> list[Any]:
        return [part.cache for part in self._parts]

    def advance(self, forward: Forward, columns: int, *, every: bool = False) -> Any:
        """Computes all of each; the logits after the last tokens, or after `every` one where all are as long."""
        import torch

        logits = [part.advance(forward, part.width, every=every) for part in self._parts]
        self.done = self.width
        return torch.cat(logits)


class Solo:
    """Rows with a cache each, of whatever kind the model has: a pass for each row, every prompt in one piece."""

    together = False

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self._caches: list[Any] = []
        self._lengths: list[int] = []

    def start(self, prompts: Sequence[Sequence[int]]) -> Prompts:
        """Prompts with their caches."""
        return _Each(prompts, self._forward)

    def join(self, prompts: Prompts, sources: Sequence[int]) -> None:
        """A prompt's cache becomes the row's; further rows get copies."""
        caches = prompts.caches
        for place, source in enumerate(sources):
            cache = caches[source]
            self._caches.append(copy.deepcopy(cache) if source in sources[:place] else cache)
            self._lengths.append(prompts.lengths[source])

    def decode(self, tokens: Any) -> Any:
        """One row after the other."""
        import torch

        device = self._forward.device
        logits: list[Any] = []
        for row, (token, cache, length) in enumerate(zip(tokens.to(device), self._caches, self._lengths, strict=True)):
            mask = torch.ones((1, length + 1), dtype=torch.long, device=device)
            logits.append(self._forward(token.view(1, 1), mask, mask[:, :1] * length, cache)[:, -1])
            self._lengths[row] += 1
        return torch.cat(logits)

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copies what the sources have."""
        for source, target in zip(sources, targets, strict=True):
            # A row that is new.
            if target == len(self._caches):
                self._caches.append(None)
                self._lengths.append(0)
            self._caches[target] = copy.deepcopy(self._caches[source])
            self._lengths[target] = self._lengths[source]

    def leave(self, row: int) -> None:
        """Drops its cache."""
        for values in (self._caches, self._lengths):
            last = values.pop()
            if row < len(values):
                values[row] = last

    def need(self, lengths: Sequence[int], columns: int = 1) -> int:
        """No padding."""
        return sum(self._lengths) + sum(lengths) + columns * (len(self._lengths) + len(lengths))
