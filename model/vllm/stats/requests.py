"""What is counted of single requests, by vLLM's own classes, as its OutputProcessor counts, which is not used here.

    Core.add --begin--> times of a request <--iteration, with each EngineCoreOutputs--> IterationStats, for its loggers
    Core.abort --drop--> nothing of it is counted, as in vLLM

A request that was there before the first scrape is unknown: its tokens are counted, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...adapters.adapter import name_of_key
from ..library.parts import part

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

__all__ = ["CountedRequests"]

MAX_ADAPTERS = 100
"""Adapters that a label names."""


@dataclass(slots=True)
class _Group:
    """The sequences of one request of a client's."""

    most: int = 0
    """Tokens of the longest."""
    sequences: int = 0
    open: int = 0


@dataclass(slots=True)
class _Counted:
    """One sequence."""

    times: Any
    """vLLM's RequestStateStats."""
    group: _Group
    prompt_tokens: int
    max_tokens: int | None
    adapter: str | None
    cached: int = 0
    begun: bool = False
    """Whether its first token has come."""


class CountedRequests:
    """Of one model. On the event loop, but for `adapters`."""

    def __init__(self, max_loras: int | None) -> None:
        """`max_loras`: the slots for adapters; None: there are none."""
        self._counted: dict[str, _Counted] = {}
        self._groups: dict[str, _Group] = {}
        self._max_loras = max_loras
        self._adapters: Any = part("vllm.v1.metrics.stats:LoRARequestStates")(True)

    def begin(self, request: Any) -> None:
        """Takes an EngineCoreRequest that is sent."""
        group = self._groups.setdefault(_group(request.request_id), _Group())
        group.sequences += 1
        group.open += 1
        params, adapter = request.sampling_params, request.lora_request
        self._counted[request.request_id] = _Counted(
            part("vllm.v1.metrics.stats:RequestStateStats")(arrival_time=request.arrival_time),
            group,
            len(request.prompt_token_ids or ()),
            None if params is None else params.max_tokens,
            None if adapter is None else name_of_key(adapter.lora_name),
        )

    def drop(self, names: Iterable[str]) -> None:
        """Takes requests that are aborted."""
        for name in names:
            if (counted := self._counted.pop(name, None)) is not None:
                self._end(name, counted)

    def iteration(self, outputs: Any) -> Any:
        """What an EngineCoreOutputs brought."""
        stats = part("vllm.v1.metrics.stats:IterationStats")()
        for output in outputs.outputs:
            if (counted := self._counted.get(output.request_id)) is None:
                stats.num_generation_tokens += len(output.new_token_ids)
                if output.prefill_stats is not None:
                    stats.prompt_token_stats.update_from_output(output.prefill_stats)
                continue
            if output.prefill_stats is not None:
                counted.cached = output.prefill_stats.num_cached_tokens
            first, counted.begun = not counted.begun, True
            stats.update_from_output(output, outputs.timestamp, first, counted.times, self._adapters, counted.adapter)
            if output.finish_reason is not None:
                del self._counted[output.request_id]
                self._finish(stats, output, counted)
        return stats

    def _finish(self, stats: Any, output: Any, counted: _Counted) -> None:
        stats.update_from_finished_request(
            finish_reason=output.finish_reason,
            request_id=output.request_id,
            num_prompt_tokens=counted.prompt_tokens,
            max_tokens_param=counted.max_tokens,
            req_stats=counted.times,
            num_cached_tokens=counted.cached,
        )
        group = counted.group
        group.most = max(group.most, counted.times.num_generation_tokens)
        self._end(output.request_id, counted)
        if not group.open:
            stats.max_num_generation_tokens_iter.append(group.most)
            stats.n_params_iter.append(group.sequences)

    def _end(self, name: str, counted: _Counted) -> None:
        self._adapters.request_finished(name, counted.adapter)
        counted.group.open -= 1
        if not counted.group.open:
            self._groups.pop(_group(name), None)

    def adapters(self) -> Iterator[GaugeMetricFamily]:
        """vLLM's `lora_requests_info`. Its own makes a series of each set of adapters that ever ran, and keeps them."""
        from prometheus_client.core import GaugeMetricFamily

        if self._max_loras is None:
            return
        known = [*self._adapters.requests.copy().items()]
        waiting, running = (
            ",".join([name for name, states in known if getattr(states, which)][:MAX_ADAPTERS])
            for which in ("waiting", "running")
        )
        labels = ("max_lora", "waiting_lora_adapters", "running_lora_adapters")
        family = GaugeMetricFamily("vllm:lora_requests_info", "Running stats on lora requests.", labels=labels)
        family.add_metric((str(self._max_loras), waiting, running), time.time())
        yield family


def _group(name: str) -> str:
    """The part that the names of a generation's sequences share (Core.name)."""
    return name.rpartition(".")[0]
