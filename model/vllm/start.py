"""What surrounds vLLM in the engine's process: its configuration, its start, its errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

from ..engine import EngineInfo
from ..log_filters import withhold_in_children
from ..options import Settings
from ..process.child import SCRATCH
from ..process.ending.crash_report import crash_at_once
from ..process.ending.output_tail import OutputTail
from ..vllm_messages import says_nothing
from .core import Core
from .library.internals import run_workers, transcribes
from .library.parts import SERVER, check_attributes, check_library, part
from .library.version import vllm_version
from .mistral.grammars import prepare_mistral
from .options import engine_arguments, local_processes
from .setup.heads import check_heads
from .setup.hosts import joined_by_others
from .setup.lmcache import configure
from .setup.plugins import import_plugins
from .setup.steps import step
from .typical import Typical
from .watch import end_with, killed, started

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["make_core", "start", "start_headless"]

PROCESSES = "VLLM_WORKER_MULTIPROC_METHOD"
"""vLLM's variable for how its processes come to be: by `fork`, its default on a GPU, or by `spawn`."""


def make_core(settings: Settings, typical: Typical | None = None) -> Core:
    """vLLM's core, which is still to be started.

    `typical` may change its arguments and its VllmConfig. Raises OptionError, StartError for a part of vLLM that is
    missing, and whatever vLLM raises.
    """
    with step("reading the model's configuration"):
        config, arguments = make_config(settings, typical)
    core = Core(config, log_stats=not arguments["disable_log_stats"])
    check_attributes("vllm.config:ModelConfig", core.model_config)
    check_attributes("vllm.renderers:BaseRenderer", core.renderer)
    prepare_mistral(core, settings)
    return core


def make_config(settings: Settings, typical: Typical | None = None) -> tuple[VllmConfig, dict[str, Any]]:
    """vLLM's configuration, and the arguments that it was made of; raises as `make_core` does."""
    _choose_sockets()
    from vllm import EngineArgs

    if SCRATCH in os.environ:
        # A process of the engine's own, and not one that has other plans for its signals.
        crash_at_once()
    check_library()
    import_plugins(settings)
    arguments = engine_arguments(settings)
    configure(settings, local_processes(arguments, settings))
    if typical is not None:
        typical.ask(arguments)
    chosen = os.environ.get(PROCESSES)
    config = EngineArgs(**arguments).create_engine_config(part(SERVER), headless=settings.parallel.follows)
    if chosen:
        # vLLM's CPU platform has just replaced what the user's environment says.
        os.environ[PROCESSES] = chosen
    if transcribes(config.model_config):
        # vLLM has such a model's processor work here before its core is started: the threads of what computes in it
        # are not in a process that is forked then, which waits for them for ever. `vllm serve` spawns it always.
        os.environ[PROCESSES] = "spawn"
    check_heads(settings, config)
    if typical is not None:
        typical.decide(config)
    if settings.log_requests != "true":
        withhold_in_children()
    return config, arguments


def start(core: Core, settings: Settings) -> None:
    """Starts a core and waits until it is up: its weights are loaded here, and on other hosts that are to take part.
    Raises StartError for a host that is missing, and whatever vLLM raises.
    """
    with joined_by_others(settings, _decided(core.vllm_config), core.ended):
        _start_watched(core.start, core.ended)


def _decided(config: VllmConfig) -> dict[str, str]:
    """What followers take from the leader (nodes/facts.py, LEADERS)."""
    parallel: Any = config.parallel_config
    return {
        "tensor_parallel_size": str(parallel.tensor_parallel_size),
        "pipeline_parallel_size": str(parallel.pipeline_parallel_size),
        "max_num_seqs": str(config.scheduler_config.max_num_seqs),
    }


def start_headless(settings: Settings) -> EngineInfo:
    """Starts what this host has of a model whose core is on another one; ends this process when any of it ends.
    Raises whatever vLLM raises.
    """
    config, _ = make_config(settings, Typical(settings))
    _start_watched(partial(run_workers, config), Event())
    return EngineInfo(engine="vllm", version=vllm_version(), context=config.model_config.max_model_len)


def _start_watched(begin: Callable[[], None], ended: Event) -> None:
    """Lets `begin` start vLLM's processes, and watches them until they are meant to have `ended`."""
    with OutputTail() as output, started() as found, step("loading the weights and preparing the engine"):
        try:
            begin()
        except Exception as error:
            if says_nothing(str(error)):
                raise RuntimeError(output.failure() or killed(found) or output.cause() or SILENT) from error
            raise
    end_with(found, output, ended)


SILENT = "one of vLLM's processes ended without a word, as one does that the kernel kills where memory is short"


def _choose_sockets() -> None:
    """Where the sockets between vLLM's processes lie: in a folder that goes with the engine, for a process that is
    killed leaves them behind. A socket's path may have 107 bytes; vLLM's own name for one has 36."""
    scratch = os.environ.get(SCRATCH, "")
    if scratch and len(os.fsencode(scratch)) <= 107 - 1 - 36:
        os.environ.setdefault("VLLM_RPC_BASE_PATH", scratch)
