"""What surrounds vLLM in the engine's process: where its core runs, its errors, the watch over its processes."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.process import BaseProcess
from typing import Any

from ..log_filters import withhold_in_children
from ..options import Settings
from ..process.child import SCRATCH
from ..process.ending.crash_report import crash_at_once
from ..process.ending.exit_report import describe_exit, end_at_once
from ..process.ending.output_tail import OutputTail
from ..vllm_messages import says_nothing
from .core import Core
from .internals import check_library
from .setup.lmcache import configure
from .setup.plugins import import_plugins
from .typical import Typical

__all__ = ["client_errors", "eos_ids", "make_core", "start"]

PROCESSES = "VLLM_WORKER_MULTIPROC_METHOD"
"""vLLM's variable for how its processes come to be: by `fork`, its default on a GPU, or by `spawn`."""


def make_core(settings: Settings, typical: Typical | None = None) -> Core:
    """vLLM's core, which is still to be started.

    `typical` may change its arguments and its VllmConfig. Raises OptionError, StartError for a part of vLLM that is
    missing, and whatever vLLM raises.
    """
    _choose_sockets()
    from vllm import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    from .options import engine_arguments

    if SCRATCH in os.environ:
        # A process of the engine's own, and not one that has other plans for its signals.
        crash_at_once()
    check_library()
    import_plugins(settings)
    arguments = engine_arguments(settings)
    configure(settings, arguments["tensor_parallel_size"])
    if typical is not None:
        typical.ask(arguments)
    chosen = os.environ.get(PROCESSES)
    config = EngineArgs(**arguments).create_engine_config(UsageContext.ENGINE_CONTEXT)
    if chosen:
        # vLLM's CPU platform has just replaced what the user's environment says.
        os.environ[PROCESSES] = chosen
    if typical is not None:
        typical.decide(config)
    if settings.log_requests != "true":
        withhold_in_children()
    return Core(config, log_stats=not arguments["disable_log_stats"])


def start(core: Core) -> None:
    """Starts a core and waits until it is up: its weights are loaded here. Raises whatever vLLM raises."""
    before = set(multiprocessing.active_children())
    with OutputTail() as output:
        try:
            core.start()
        except Exception as error:
            if says_nothing(str(error)) and (cause := output.cause()):
                raise RuntimeError(cause) from error
            raise
    _end_with(core, set(multiprocessing.active_children()) - before, output)


def _choose_sockets() -> None:
    """Where the sockets between vLLM's processes lie: in a folder that goes with the engine, for a process that is
    killed leaves them behind. A socket's path may have 107 bytes; vLLM's own name for one has 36."""
    scratch = os.environ.get(SCRATCH, "")
    if scratch and len(os.fsencode(scratch)) <= 107 - 1 - 36:
        os.environ.setdefault("VLLM_RPC_BASE_PATH", scratch)


def _end_with(core: Core, children: set[BaseProcess], output: OutputTail) -> None:
    """Ends this process with any of vLLM's: how a process ended is known here only."""
    by_sentinel = {child.sentinel: child for child in children}

    def watch() -> None:
        ended = [by_sentinel[sentinel] for sentinel in wait_for_any(list(by_sentinel)) if isinstance(sentinel, int)]
        if core.closed:
            return
        how = "; ".join(f"vLLM's process {child.name} ended{_how(child)}" for child in ended)
        cause = "" if "signal" in how else output.cause()
        end_at_once(f"{how}: {cause}" if cause else how)

    threading.Thread(target=watch, name="lmi-watch", daemon=True).start()


def _how(child: BaseProcess) -> str:
    """How a process that has ended did; vLLM waits for it as well, so that for a moment nobody may know."""
    for _ in range(20):
        if (code := child.exitcode) is not None:
            return f" {describe_exit(code)}"
        time.sleep(0.01)
    return ""


def client_errors() -> tuple[type[Exception], ...]:
    """What vLLM raises for a bad request: from 0.32 on not a ValueError any more.

    A TypeError is not among them: requests are typed when they come here, so it is a call that this vLLM does not take.
    """
    import vllm.exceptions

    later = getattr(vllm.exceptions, "VLLMClientError", None)
    return (ValueError,) if later is None else (ValueError, later)


def eos_ids(config: Any, tokenizer: Any) -> frozenset[int]:
    """All token ids with which the model ends by itself."""
    given = config.try_get_generation_config().get("eos_token_id")
    ids = given if isinstance(given, list) else [given]
    return frozenset(token_id for token_id in (*ids, tokenizer.eos_token_id) if token_id is not None)
