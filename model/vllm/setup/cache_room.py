"""How many tokens the KV cache holds, told once the core is up.

That it holds not even one request of the longest kind ends vLLM's start, which tells what to lower then
(process/ending/start_errors.py).
"""

from __future__ import annotations

import logging
from typing import Any

from ...options import Settings

__all__ = ["room", "tell_room"]

log = logging.getLogger(__name__)


def tell_room(settings: Settings, config: Any) -> None:
    """Logs it, by the VllmConfig of a core that is up; nothing where the model has no cache, or vLLM does not
    say how large it is."""
    if tokens := getattr(config.cache_config, "kv_cache_size_tokens", None):
        log.info("%s", room(tokens, config.model_config.max_model_len, settings.max_rolling_batch_size))


def room(tokens: int, longest: int, sequences: int) -> str:
    """The line for a cache of so many tokens, where the longest request that is taken has so many tokens, and so many
    sequences may run at once.
    """
    line = f"the KV cache holds {tokens} tokens: {tokens / longest:.1f} requests of max_model_len={longest}"
    if tokens < longest * sequences:
        line += f", or {sequences} (max_rolling_batch_size) of {tokens // sequences} tokens each"
    return line
