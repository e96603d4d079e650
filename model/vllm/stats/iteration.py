"""What one EngineCoreOutputs brought, as vLLM's loggers take it (IterationStats).

vLLM counts it in its OutputProcessor, with times of each request beside, which nobody takes here: what is not in it are
latencies, and what a request asked for.
"""

from __future__ import annotations

from typing import Any

from ..library.parts import part

__all__ = ["iteration_stats"]


def iteration_stats(outputs: Any) -> Any:
    """Tokens and preemptions."""
    counted = part("vllm.v1.metrics.stats:IterationStats")()
    preempted = part("vllm.v1.engine:EngineCoreEventType.PREEMPTED")
    for output in outputs.outputs:
        counted.num_generation_tokens += len(output.new_token_ids)
        if output.prefill_stats is not None:
            counted.prompt_token_stats.update_from_output(output.prefill_stats)
        if output.events:
            counted.num_preempted_reqs += sum(event.type == preempted for event in output.events)
    return counted
