"""lmi-dist's three options of speculative decoding as vLLM's one (djl-contract, 8).

speculative_draft_model, speculative_length, draft_model_tp_size  -->  speculative_config
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["speculative_config"]

LENGTH = 4
"""Tokens that are drafted at once: lmi-dist's default."""
PROMPT_LOOKUP = {"ngram", "[ngram]"}
"""No draft model: what followed the same tokens earlier in the prompt or the answer is the draft."""


def speculative_config(values: Mapping[str, Any], directory: str) -> str | None:
    """`speculative_config` as JSON; None where no draft model is named, without which the others mean nothing.

    A path that there is in the model directory is taken from there, as with model_id.
    """
    model = values.get("speculative_draft_model")
    if not model:
        return None
    config: dict[str, Any] = {"num_speculative_tokens": values.get("speculative_length", LENGTH)}
    if model in PROMPT_LOOKUP:
        return json.dumps({"method": "ngram", **config})
    inside = Path(directory, model)
    draft = {"model": str(inside.absolute()) if inside.exists() else model, "method": "draft_model"}
    return json.dumps({**draft, **config, "draft_tensor_parallel_size": values.get("draft_model_tp_size", 1)})
