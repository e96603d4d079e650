"""What `lmi check` says of the workers that DJL Serving starts, where the options alone tell it.

The rules are those of DJL Serving 0.36: ModelInfo (getLoadOnDevices, getMaxWorkers) and LmiConfigRecommender.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....model.options import Settings

__all__ = ["worker_lines"]

SINGLE = ("enable_lora", "enable_stateful_sessions")
"""Options that, written out as true, make DJL Serving start one worker (LmiConfigRecommender)."""
DEGREES = {"tensor_parallel_degree": "tensor_parallel_size", "pipeline_parallel_degree": "pipeline_parallel_size"}
"""What DJL Serving cuts the devices out by, and vLLM's own names of the same."""


def worker_lines(settings: Settings, given: Mapping[str, str]) -> Iterator[str]:
    """Lines for a person. `given` are the options as they are written, without `option.`."""
    for known, name in DEGREES.items():
        # Stages over several nodes are nothing of its own devices.
        over_nodes = settings.parallel.nnodes > 1 and known == "pipeline_parallel_degree"
        if name in given and known not in given and not over_nodes:
            counts = f"DJL Serving does not know it, and counts devices by option.{known} alone"
            yield f"warning: option.{name}: {counts}: set option.{known}={given[name]}"
    single = [f"option.{name}=true" for name in SINGLE if given.get(name, "").strip().lower() == "true"]
    if single:
        only = "DJL Serving starts one worker only, on the first devices, and none without a GPU"
        yield f"note: {' and '.join(single)}: {only}"
        return
    for name in ("maxWorkers", "gpu.maxWorkers"):
        text = given.get(name, "").strip()
        if text.isdecimal() and int(text) > 1:
            share = "so many workers share each device, each with its own engine and copy of the model"
            yield f"warning: {name}={text}: {share}; option.gpu_memory_utilization of all together has to stay below 1"
