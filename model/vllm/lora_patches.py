"""What vLLM's kernels for CPUs do wrong with adapters, put right in the process that runs the model.

`worker_extension_cls` is vLLM's way to have functions of one's own in it, however that process came to be.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from .library.parts import check_attributes, part

__all__ = ["EXTENSION", "MEND", "AdapterWorker"]

OPERATIONS = "vllm.lora.ops.torch_ops"
KERNELS = "vllm.lora.punica_wrapper.punica_cpu:PunicaWrapperCPU"
RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"


class AdapterWorker:
    """What vLLM's worker gets in addition; it makes no object of this."""

    model_runner: Any

    def lmi_mend_adapters(self) -> None:
        """To be called once, before the first request; raises StartError for a part of vLLM that is missing."""
        check_attributes(RUNNER, runner := self.model_runner)
        check_attributes("vllm.v1.worker.gpu_input_batch:InputBatch", runner.input_batch)
        check_attributes("vllm.v1.utils:CpuGpuBuffer", runner.query_start_loc)
        spare_base_rows()
        heed_prompts()


EXTENSION = f"{AdapterWorker.__module__}.{AdapterWorker.__qualname__}"
"""For `worker_extension_cls`."""
MEND = AdapterWorker.lmi_mend_adapters.__name__


def spare_base_rows() -> None:
    """Tokens without an adapter go without one, and those of several devices with theirs.

    Their index is -1, which vLLM's kernels for CPUs (0.26.0, 0.32.0) take for that of the last slot: beside requests
    with adapters those without would have that one's answers. And of several devices vLLM joins what each has (0.26.0,
    column_parallel_linear.py, _mcp_apply), though all have the same: its kernels for GPUs read as many columns as the
    weights have, those for CPUs all.
    """
    for name in ("bgmv_expand", "bgmv_expand_slice"):
        spared = _spared(part(f"{OPERATIONS}.lora_ops:{name}"))
        for module in (f"{OPERATIONS}.lora_ops", OPERATIONS, "vllm.lora.punica_wrapper.punica_cpu"):
            setattr(importlib.import_module(module), name, spared)


def _spared(expand: Callable[..., None]) -> Callable[..., None]:
    def expand_spared(inputs: Any, weights: Any, output: Any, indices: Any, *more: Any, **named: Any) -> None:
        columns = inputs[:, : weights.shape[-1]]
        expand(columns * (indices >= 0).unsqueeze(1), weights, output, indices, *more, **named)

    return expand_spared


def heed_prompts() -> None:
    """The log-probabilities of a prompt's tokens are computed with the adapter of its own request.

    vLLM computes them for each request by itself, after those of the step's new tokens (gpu_model_runner.py), and its
    kernels for CPUs (0.26.0, 0.32.0) still have one adapter for each new token then: as many as there are requests, to
    which a prompt's tokens do not fit, so that beside others one such request would end the engine.
    """
    runner, kernels = part(RUNNER), part(KERNELS)
    told, of_new_tokens = part(f"{RUNNER}._get_prompt_logprobs_dict"), part(f"{KERNELS}.sampler_indices").fget
    part(f"{KERNELS}.token_lora_indices")
    row: int | None = None
    """The place, among the step's tokens, of one of the prompt's."""

    def sampler_indices(self: Any) -> Any:
        return of_new_tokens(self) if row is None else self.token_lora_indices[row : row + 1]

    def told_one_by_one(self: Any, hidden_states: Any, num_scheduled_tokens: Any) -> dict[str, Any]:
        nonlocal row
        asked, found = self.num_prompt_logprobs, dict[str, Any]()
        try:
            for name in [name for name in asked if name in num_scheduled_tokens]:
                row = int(self.query_start_loc.np[self.input_batch.req_id_to_index[name]])
                self.num_prompt_logprobs = one = {name: asked[name]}
                found |= told(self, hidden_states, num_scheduled_tokens)
                if not one:
                    # Its prompt is done.
                    del asked[name]
        finally:
            row, self.num_prompt_logprobs = None, asked
        return found

    runner._get_prompt_logprobs_dict = told_one_by_one
    kernels.sampler_indices = property(sampler_indices)
