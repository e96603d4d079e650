"""`option.backend=auto`: vLLM, or transformers for a model that vLLM does not support."""

from __future__ import annotations

import logging

from .backend import AsyncBackend, Backend
from .options import Settings
from .options.choice import FOR_TRANSFORMERS
from .transformers.engine import TransformersEngine
from .transformers.options import ONLY_HERE
from .vllm.options import refusal

__all__ = ["first_that_runs", "refusal"]

log = logging.getLogger(__name__)


def first_that_runs(settings: Settings) -> Backend | AsyncBackend:
    """A backend for the model; raises what its start raises."""
    why = refusal(settings)
    if why is None:
        from .vllm.engine import VllmEngine

        if ignored := [name for name in sorted({*ONLY_HERE, *FOR_TRANSFORMERS}) if _given(settings, name)]:
            log.warning("without effect on vLLM: %s", ", ".join(f"option.{name}" for name in ignored))
        return VllmEngine(settings)
    log.warning("the transformers engine runs this model, as vLLM does not: %s", why)
    return TransformersEngine(settings)


def _given(settings: Settings, name: str) -> bool:
    return bool(settings.engine_arguments.get(name) or getattr(settings, name, None))
