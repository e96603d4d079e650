"""Metrics in the log, for hosts that have no `/metrics` of ours: behind DJL Serving.

    every option.metrics_interval seconds, if anything has happened:
        one line with what is counted and measured since the last one
        for DJL Serving itself a line a metric, which it puts into its model_metric log and, with
        SERVING_PROMETHEUS=true, among its own Prometheus metrics

DJL's form of a metric is `[METRICS]NAME.UNIT:VALUE|#DIMENSION:VALUE|TYPE` on the worker's output
(ai.djl.metric.Metric's parse; PyProcess.ReaderThread). It believes whatever comes in that form: of clients' words
nothing does (model/log_filters.py, tidy). The dimension is the worker's number (djl/worker_number.py): of several
workers' gauges Prometheus would keep only the one told last, for DJL's appender makes the dimension the label.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...model.engine import Engine, EngineStats
from ..telemetry.metrics import Histogram, Metrics

__all__ = ["Reporter"]

log = logging.getLogger(__name__)


@dataclass
class _Snapshot:
    """The counts at some time."""

    outcomes: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    prompt_tokens: int = 0
    generated_tokens: int = 0
    deaths: int = 0
    tasks: int = 0
    """Not a count: how many there are now. That they have become more or fewer is news, too."""
    sums: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    """Of each histogram how many values there were, and their sum."""


_TIMES = {"first_token": "first", "inter_token": "inter_token", "total": "duration"}
"""What lines call the histograms of Metrics."""
_NAMES = {"first_token": "LmiTimeToFirstToken", "inter_token": "LmiInterTokenLatency", "total": "LmiRequestDuration"}


class Reporter:
    """Reports on one service, on a thread of its own."""

    def __init__(self, metrics: Metrics, engine: Engine, interval: float, worker: int) -> None:
        self._metrics = metrics
        self._engine = engine
        self._interval = interval
        self._worker = worker
        self._last = self._snapshot()
        self._ended = threading.Event()

    def start(self) -> None:
        """Begins, unless the interval is 0."""
        if self._interval:
            threading.Thread(target=self._run, name="lmi-reporter", daemon=True).start()

    def close(self) -> None:
        """Ends it."""
        self._ended.set()

    def report(self) -> tuple[str, list[str]] | None:
        """The line for people and the lines for DJL, of what has happened since the last report; None for nothing."""
        before, now = self._last, self._snapshot()
        in_flight = self._metrics.in_flight
        if now == before and not in_flight:
            return None
        self._last = now
        stats = self._engine.stats
        return self._line(before, now, stats), list(_djl_lines(before, now, stats, in_flight, self._worker))

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            try:
                reported = self.report()
            except Exception:
                log.exception("the metrics could not be reported")
                continue
            if reported is None:
                continue
            line, metrics = reported
            log.info("%s", line)
            # The worker's output may be closed when the host ends.
            with contextlib.suppress(OSError, ValueError):
                # In one piece, so that nothing gets in between.
                sys.stdout.write("".join(f"[METRICS]{metric}\n" for metric in metrics))
                sys.stdout.flush()

    def _snapshot(self) -> _Snapshot:
        metrics = self._metrics
        outcomes: Counter[str] = Counter()
        for (_, _, outcome), count in metrics.requests.copy().items():
            outcomes[outcome] += count
        sums = {name: _sum(getattr(metrics, attribute)) for name, attribute in _TIMES.items()}
        return _Snapshot(
            outcomes,
            metrics.errors.copy(),
            metrics.prompt_tokens,
            metrics.generated_tokens,
            self._engine.deaths,
            metrics.tasks,
            sums,
        )

    def _line(self, before: _Snapshot, now: _Snapshot, stats: EngineStats) -> str:
        outcomes = now.outcomes - before.outcomes
        errors = now.errors - before.errors
        parts = [
            f"in {self._interval:g} s: requests={outcomes.total()}",
            *(f"{outcome}={count}" for outcome, count in sorted(outcomes.items())),
            f"in_flight={self._metrics.in_flight} running={stats.running} waiting={stats.waiting} tasks={now.tasks}",
            f"kv_cache={stats.cache_usage:.3f}",
            f"prompt_tokens={now.prompt_tokens - before.prompt_tokens}",
            f"generated_tokens={now.generated_tokens - before.generated_tokens}",
            *(f"{name}={mean:.4f}s" for name, mean in _means(before, now)),
            *(f"error_{code}={count}" for code, count in sorted(errors.items())),
        ]
        if now.deaths != before.deaths:
            parts.append(f"engine_deaths={now.deaths - before.deaths}")
        return " ".join(parts)


def _sum(histogram: Histogram) -> tuple[int, float]:
    return histogram.count, histogram.total


def _means(before: _Snapshot, now: _Snapshot) -> Iterator[tuple[str, float]]:
    for name, (count, total) in now.sums.items():
        count_before, total_before = before.sums[name]
        if count > count_before:
            yield name, (total - total_before) / (count - count_before)


def _djl_lines(before: _Snapshot, now: _Snapshot, stats: EngineStats, in_flight: int, worker: int) -> Iterator[str]:
    """Metrics in DJL's form: counts since the last report, which it adds up, and gauges."""
    outcomes = now.outcomes - before.outcomes
    counts = {
        "LmiRequests": outcomes.total(),
        **{f"LmiRequests_{outcome}": outcomes[outcome] for outcome in ("ok", "refused", "failed", "aborted")},
        "LmiPromptTokens": now.prompt_tokens - before.prompt_tokens,
        "LmiGeneratedTokens": now.generated_tokens - before.generated_tokens,
        "LmiEngineDeaths": now.deaths - before.deaths,
    }
    dimension = f"#Worker:{worker}"
    for name, value in counts.items():
        yield f"{name}.Count:{value}|{dimension}|c"
    gauges = {"LmiInFlight": in_flight, "LmiRunning": stats.running, "LmiWaiting": stats.waiting, "LmiTasks": now.tasks}
    for name, value in gauges.items():
        yield f"{name}.Count:{value}|{dimension}|g"
    yield f"LmiKvCacheUsage.Percent:{100 * stats.cache_usage:.3f}|{dimension}|g"
    for name, mean in _means(before, now):
        yield f"{_NAMES[name]}.Milliseconds:{1000 * mean:.3f}|{dimension}|g"
