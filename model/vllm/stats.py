"""How busy vLLM is, without its own statistics, which cost a Python call or more a token.

    core in this process     its scheduler is looked at
    core in its own process  it reports with each step; what this side would make of that is left out

Where the scheduler looks different in some other version, the numbers that cannot be read are 0.
"""

from __future__ import annotations

import logging
from typing import Any

from ..engine import EngineStats

__all__ = ["VllmStats", "core_has_own_process"]

log = logging.getLogger(__name__)


def core_has_own_process() -> bool:
    """What vLLM will do, by its environment."""
    import vllm.envs

    return bool(vllm.envs.VLLM_ENABLE_V1_MULTIPROCESSING)


class VllmStats:
    """Of one LLMEngine. With its core in another process the engine has to be made with `disable_log_stats=False`."""

    def __init__(self, llm: Any, *, quiet: bool) -> None:
        core = getattr(llm.engine_core, "engine_core", None)
        self._scheduler = getattr(core, "scheduler", None)
        self._reported: Any = None
        if self._scheduler is None:
            self._take_reports(llm, quiet)

    def now(self) -> EngineStats:
        """As of the last step."""
        try:
            return self._looked() if self._scheduler is not None else self._told()
        except AttributeError:
            log.debug("vLLM's scheduler is not as expected", exc_info=True)
            return EngineStats()

    def _looked(self) -> EngineStats:
        scheduler: Any = self._scheduler
        running = len(scheduler.running)
        unfinished: int = scheduler.get_num_unfinished_requests()
        usage: float = scheduler.kv_cache_manager.usage
        return EngineStats(running=running, waiting=max(0, unfinished - running), cache_usage=usage)

    def _told(self) -> EngineStats:
        reported: Any = self._reported
        if reported is None:
            return EngineStats()
        waiting: int = reported.num_waiting_reqs + reported.num_skipped_waiting_reqs
        return EngineStats(running=reported.num_running_reqs, waiting=waiting, cache_usage=reported.kv_cache_usage)

    def _take_reports(self, llm: Any, quiet: bool) -> None:
        """Keeps the core's newest report; with `quiet` nothing else is made of it."""
        processor = llm.output_processor
        pass_on = processor.update_scheduler_stats

        def take(reported: Any) -> None:
            if reported is not None:
                self._reported = reported
            pass_on(reported)

        processor.update_scheduler_stats = take
        if quiet:
            llm.log_stats = processor.log_stats = processor.lora_states.log_stats = False
            llm.logger_manager = None
