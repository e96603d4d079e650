"""A transformers model's forward pass, and prompts on their way through it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from ..errors import StartError

__all__ = ["Forward", "Prompts", "device_is_lost", "new_cache", "ropes", "short_of_memory"]


def ropes(config: Any) -> list[dict[str, Any]]:
    """How the model's rotary embeddings are stretched: the parameters of each kind of layer."""
    text = config.get_text_config(decoder=True)
    given = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    kinds = [part for part in given.values() if isinstance(part, dict)] or [given]
    return [{**part, "rope_type": part.get("rope_type", part.get("type"))} for part in kinds]


def new_cache(model: Any) -> Any:
    """An empty cache of the model's own kind."""
    from transformers import DynamicCache

    return DynamicCache(config=model.config)


class Forward:
    """A model's forward pass, whatever its arguments are called; raises StartError where it has no cache."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.device = model.get_input_embeddings().weight.device
        known = inspect.signature(model.forward).parameters
        self._cache = next((name for name in ("past_key_values", "cache_params") if name in known), "")
        # A few old models keep what they have seen in other ways.
        served = getattr(model, "_supports_default_dynamic_cache", lambda: True)()
        if not self._cache or not served:
            raise StartError(f"the transformers engine cannot run {type(model).__name__}: it has no ordinary cache")
        self._keep = next((name for name in ("logits_to_keep", "num_logits_to_keep") if name in known), "")
        self._positions = "position_ids" in known

    def __call__(self, ids: Any, mask: Any, positions: Any, cache: Any, *, every: bool = False) -> Any:
        """Logits after the last of `ids` [rows, columns], or after `every` one of them: [rows, columns or 1, words].

        `mask` has a 1 for each token of the row in the cache and in `ids`, and a 0 for padding.
        """
        arguments = {"input_ids": ids, self._cache: cache, "use_cache": True}
        # Recurrent models take a mask of the new tokens alone, and none is needed: their rows have no padding.
        if self._cache == "past_key_values":
            arguments["attention_mask"] = mask
        if self._positions:
            arguments["position_ids"] = positions
        if self._keep and not every:
            arguments[self._keep] = 1
        logits = self.model(**arguments, return_dict=True).logits
        return logits if every else logits[:, -1:]


class Prompts:
    """Prompts that are computed together, in pieces; each stands at the right edge of its row."""

    def __init__(self, prompts: Sequence[Sequence[int]], cache: Any, device: Any) -> None:
        import torch

        self.lengths = [len(prompt) for prompt in prompts]
        self.width = max(self.lengths)
        self.cache = cache
        self.done = 0
        """How many of the columns have been computed."""
        padded = [[0] * (self.width - len(prompt)) + list(prompt) for prompt in prompts]
        self.ids = torch.tensor(padded, device=device)
        starts = torch.tensor([self.width - length for length in self.lengths], device=device)[:, None]
        columns = torch.arange(self.width, device=device)
        self.mask = (columns >= starts).long()
        self.positions = (columns - starts).clamp(min=0)

    @property
    def caches(self) -> list[Any]:
        """The cache, or one for each prompt."""
        return [self.cache]

    def advance(self, forward: Forward, columns: int, *, every: bool = False) -> Any:
        """Computes so many columns; the logits as Forward gives them."""
        end = min(self.done + columns, self.width)
        piece = slice(self.done, end)
        logits = forward(self.ids[:, piece], self.mask[:, :end], self.positions[:, piece], self.cache, every=every)
        self.done = end
        return logits


def short_of_memory(error: Exception) -> bool:
    import torch

    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def device_is_lost(error: Exception) -> bool:
    """Whether nothing can be computed after this error."""
    return "CUDA error" in str(error) or "device-side assert" in str(error)
