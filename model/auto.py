"""`option.backend=auto`: vLLM, or transformers for a model that vLLM does not support."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

from .engine import Backend
from .errors import one_line
from .options import Settings
from .options.engine import FOR_TRANSFORMERS
from .transformers.engine import TransformersEngine
from .transformers.options import ONLY_HERE
from .vllm_messages import UNSUPPORTED_MODEL

__all__ = ["first_that_runs", "refusal"]

log = logging.getLogger(__name__)


def first_that_runs(settings: Settings) -> Backend:
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


def refusal(settings: Settings) -> str | None:
    """Why vLLM does not run the model, in a line; None where it does, or fails for another reason than its kind.

    Raises OptionError for options that neither engine takes.
    """
    if importlib.util.find_spec("vllm") is None:
        return "it is not installed"
    from vllm import EngineArgs

    from .vllm.options import engine_arguments

    arguments: dict[str, Any] = engine_arguments(settings)
    try:
        EngineArgs(**arguments).create_model_config()
    except Exception as error:  # noqa: BLE001 - vLLM itself raises it again where it is no matter of kind
        text = one_line(str(error))
        for sign in UNSUPPORTED_MODEL:
            if sign in text:
                return text.partition("Value error, ")[2].partition(sign)[0] + sign if "Value error, " in text else text
    return None
