"""vLLM's own lines about what it computes and how busy it is, every ten seconds: `option.disable_log_stats=false`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..library.parts import part
from .iteration import iteration_stats

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["StatsLog"]


class StatsLog:
    """Of one model, for each of its cores."""

    def __init__(self, config: VllmConfig) -> None:
        self._config = config
        self._loggers: dict[int, Any] = {}
        self._interval = float(part("vllm.envs:VLLM_LOG_STATS_INTERVAL"))
        self._logged = time.monotonic()

    def note(self, outputs: Any) -> None:
        """Counts what an EngineCoreOutputs brought."""
        if (logger := self._loggers.get(outputs.engine_index)) is None:
            make = part("vllm.v1.metrics.loggers:LoggingStatLogger")
            logger = self._loggers[outputs.engine_index] = make(self._config, outputs.engine_index)
        logger.record(outputs.scheduler_stats, iteration_stats(outputs))
        if (now := time.monotonic()) - self._logged > self._interval:
            self._logged = now
            for logger in self._loggers.values():
                logger.log()
