"""What telemetry/metrics.py counted, in the forms that Prometheus reads.

The library prometheus_client, which vLLM brings, writes the text; nothing of it runs while requests are served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, wait
from itertools import accumulate
from typing import TYPE_CHECKING

from ...model.engine import EngineStats
from ..adapters.registry import Entry
from ..service import Service
from ..telemetry.metrics import Histogram

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.core import HistogramMetricFamily
    from prometheus_client.registry import Collector

__all__ = ["Exposition"]


ENGINE_S = 2.0
"""Seconds that an engine has to tell its metrics: Prometheus itself gives up after 10."""
END = b"# EOF\n"
"""How a text of OpenMetrics ends."""


class Exposition:
    """A collector (prometheus_client's) of one service."""

    def __init__(self, service: Service, *more: Collector) -> None:
        """`more`: what else there is to tell."""
        from prometheus_client import CollectorRegistry, ProcessCollector

        self._service = service
        self._registry = CollectorRegistry(auto_describe=False)
        for one in (self, *more):
            self._registry.register(one)
        # Memory, CPU time and descriptors of both processes; the engine's is another one after a restart.
        ProcessCollector(registry=self._registry)
        engine = service.engine
        ProcessCollector("lmi_engine", pid=lambda: engine.process_id or "none", registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The text, and its content type: OpenMetrics for who accepts it, else Prometheus' own."""
        from prometheus_client.exposition import choose_encoder

        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """The same with the engine's own metrics behind it, if the engine tells them in time."""
        text, content_type = self.render(accept)
        asked = self._service.engine.scrape(content_type)
        # Not wait_for, which would end it for others who wait for the same.
        await asyncio.wait({asyncio.wrap_future(asked)}, timeout=ENGINE_S)
        return _both(text, asked), content_type

    def scraped(self, accept: str) -> tuple[bytes, str]:
        """As `scrape`, on a thread that may wait."""
        text, content_type = self.render(accept)
        asked = self._service.engine.scrape(content_type)
        wait({asked}, ENGINE_S)
        return _both(text, asked), content_type

    def collect(self) -> Iterator[Metric]:
        """The metrics; their names and units are described in docs/operations.md."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

        service = self._service
        engine, metrics, info = service.engine, service.metrics, service.info
        labels = {"model": service.settings.model_name, "engine": info.engine, "engine_version": info.version}
        yield InfoMetricFamily("lmi_service", "What is served.", labels)

        requests = CounterMetricFamily(
            "lmi_requests", "Requests that have been answered or aborted.", labels=("dialect", "status", "outcome")
        )
        for (dialect, status, outcome), count in sorted(metrics.requests.copy().items()):
            requests.add_metric((dialect, str(status), outcome), count)
        yield requests
        errors = CounterMetricFamily("lmi_errors", "Requests that ended with an error.", labels=("code",))
        for code, count in sorted(metrics.errors.copy().items()):
            errors.add_metric((code,), count)
        yield errors
        counters: tuple[tuple[str, str, float], ...] = (
            ("lmi_audio_seconds", "Seconds of audio that was transcribed.", metrics.audio_seconds),
            ("lmi_prompt_tokens", "Prompt tokens.", metrics.prompt_tokens),
            ("lmi_cached_prompt_tokens", "Prompt tokens found in the prefix cache.", metrics.cached_tokens),
            ("lmi_generated_tokens", "Generated tokens of sequences that have ended.", metrics.generated_tokens),
            (
                "lmi_dropped_characters",
                "Characters that tool call and reasoning parsers left out of answers.",
                metrics.dropped_characters,
            ),
            ("lmi_engine_deaths", "Unexpected exits of the engine.", engine.deaths),
            ("lmi_engine_rebuilds", "Successful restarts of the engine.", engine.rebuilds),
        )
        yield from (CounterMetricFamily(name, what, value=value) for name, what, value in counters)

        stats = engine.stats
        yield from _adapters([] if service.adapters is None else service.adapters.registered(), stats)
        gauges: tuple[tuple[str, str, float], ...] = (
            ("lmi_engine_up", "Whether the engine is up.", engine.healthy),
            ("lmi_requests_in_flight", "Requests in flight.", metrics.in_flight),
            (
                "lmi_event_loop_tasks",
                "Pending asyncio tasks, including the one that serves this response.",
                metrics.tasks,
            ),
            ("lmi_sequences_running", "Sequences running in the engine.", stats.running),
            ("lmi_sequences_waiting", "Sequences waiting in the engine.", stats.waiting),
            (
                "lmi_sequences_passed_over",
                "Waiting sequences that could not be scheduled in their turn.",
                stats.passed_over,
            ),
            ("lmi_kv_cache_usage_ratio", "How much of the KV cache is in use, from 0 to 1.", stats.cache_usage),
        )
        yield from (GaugeMetricFamily(name, what, value=value) for name, what, value in gauges)
        yield from _histograms(
            (
                ("lmi_time_to_first_token_seconds", "Time to first token of streamed requests.", metrics.first),
                ("lmi_inter_token_latency_seconds", "Time between two chunks of a stream.", metrics.inter_token),
                (
                    "lmi_time_per_output_token_seconds",
                    "Mean time per token after the first, of streams with one sequence.",
                    metrics.per_token,
                ),
                (
                    "lmi_request_duration_seconds",
                    "From a request to the end of a successful response.",
                    metrics.duration,
                ),
                ("lmi_media_decoding_seconds", "Time that decoding a request's media took.", metrics.decoding),
            )
        )


def _both(ours: bytes, asked: Future[bytes]) -> bytes:
    theirs = asked.result() if asked.done() else b""
    return ours.removesuffix(END) + theirs if theirs else ours


MAX_ADAPTERS = 100
"""How many adapters have a label of their own: those that were named last. The others are one."""


def _adapters(registered: Iterable[Entry], stats: EngineStats) -> Iterator[Metric]:
    """What was asked of each adapter that is registered now."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    entries = sorted(registered, key=lambda entry: entry.used, reverse=True)
    yield GaugeMetricFamily("lmi_adapters", "Adapters that are registered.", value=len(entries))
    yield CounterMetricFamily(
        "lmi_adapter_loads", "Adapters that the engine has loaded since its start.", value=stats.adapter_loads
    )
    yield GaugeMetricFamily(
        "lmi_sequences_waiting_for_adapter",
        "Sequences that wait until their adapter is loaded.",
        value=stats.waiting_for_adapter,
    )
    requests = CounterMetricFamily(
        "lmi_adapter_requests", "Requests that have named an adapter, since it was registered.", labels=("adapter",)
    )
    for entry in sorted(entries[:MAX_ADAPTERS], key=lambda entry: entry.adapter.name):
        requests.add_metric((entry.adapter.name,), entry.requests)
    if others := entries[MAX_ADAPTERS:]:
        requests.add_metric(("",), sum(entry.requests for entry in others))
    yield requests


def _histograms(known: Iterable[tuple[str, str, Histogram]]) -> Iterator[HistogramMetricFamily]:
    from prometheus_client.core import HistogramMetricFamily
    from prometheus_client.utils import floatToGoString

    for name, what, histogram in known:
        # Copied, for it may be added to meanwhile.
        counts = list(accumulate(list(histogram.counts)))
        bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
        yield HistogramMetricFamily(name, what, list(zip(bounds, counts, strict=True)), sum_value=histogram.total)
