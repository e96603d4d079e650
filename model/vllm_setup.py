"""What surrounds vLLM in the engine's process: where its core runs, its errors, the watch over its processes."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.process import BaseProcess
from typing import Any

from .options import Settings
from .startup import mark
from .vllm_seeds import EXTENSION, keep_seeds

__all__ = ["client_errors", "eos_ids", "start_vllm"]

log = logging.getLogger(__name__)


def start_vllm(settings: Settings, adjust: Callable[[Any], None] = lambda config: None) -> Any:
    """vLLM's LLMEngine, up; raises OptionError, and whatever vLLM raises. `adjust` may change its VllmConfig."""
    _choose_processes()
    from vllm import EngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.llm_engine import LLMEngine

    from .vllm_options import engine_arguments

    mark("import vllm")
    before = set(multiprocessing.active_children())
    arguments = engine_arguments(settings)
    mark("options")
    seeds = _mind_seeds(arguments)
    config = EngineArgs(**arguments).create_engine_config(UsageContext.ENGINE_CONTEXT)
    adjust(config)
    mark("vLLM's configuration")
    llm = LLMEngine.from_vllm_config(config, disable_log_stats=arguments["disable_log_stats"])
    mark("vLLM's engine")
    _end_with(set(multiprocessing.active_children()) - before)
    if seeds:
        keep_seeds(llm)
    return llm


def _mind_seeds(arguments: dict[str, Any]) -> bool:
    """Whether the workers can be told to keep seeds: on a CPU, unless the user has an extension of their own."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu() or arguments["runner"] != "generate":
        return False
    return bool(arguments.setdefault("worker_extension_cls", EXTENSION) == EXTENSION)


def _choose_processes() -> None:
    """Where vLLM's core runs, unless the user's environment says.

    On a GPU vLLM's own default, a process beside this one: output is processed while the next step runs. On a CPU in
    this process: its cores are the model's already, and a hop less makes a single request several times faster.
    """
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")


def _end_with(children: set[BaseProcess]) -> None:
    """Ends this process with any of vLLM's: its client would wait for ever for the next step of a core that is gone."""
    if not children:
        return

    def watch() -> None:
        wait_for_any([child.sentinel for child in children])
        log.critical("a process of vLLM ended")
        os._exit(3)

    threading.Thread(target=watch, name="lmi-watch", daemon=True).start()


def client_errors() -> tuple[type[Exception], ...]:
    """What vLLM raises for a bad request: from 0.32 on not a ValueError any more."""
    import vllm.exceptions

    later = getattr(vllm.exceptions, "VLLMClientError", None)
    return (ValueError, TypeError) if later is None else (ValueError, TypeError, later)


def eos_ids(config: Any, tokenizer: Any) -> frozenset[int]:
    """All token ids with which the model ends by itself."""
    given = config.try_get_generation_config().get("eos_token_id")
    ids = given if isinstance(given, list) else [given]
    return frozenset(token_id for token_id in (*ids, tokenizer.eos_token_id) if token_id is not None)
