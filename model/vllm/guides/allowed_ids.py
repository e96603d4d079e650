"""The tokens that a request allows (Sampling.allowed_token_ids), in vLLM's model runner V1 up to 0.31.

    in_core.py --collective_rpc--> each worker: keep_rows(worker)

It has a row of a mask for each request of a batch. One that has moved leaves its row as it was, where the next request
may come that allows all (condense, 0.26.0); and of two that change their places both get the same row (swap_states).
So somebody else's answer is made of the tokens that another one allows. vLLM 0.32 has mended both.
"""

from __future__ import annotations

from typing import Any

from ..library.parts import part

__all__ = ["BATCH", "keep_rows"]

BATCH = "vllm.v1.worker.gpu_input_batch:InputBatch"


def keep_rows(worker: Any) -> None:
    """To be called once in each worker's process, before the first request."""
    del worker
    batch = part(BATCH)
    add, swap = part(f"{BATCH}.add_request"), part(f"{BATCH}.swap_states")

    def add_request(self: Any, request: Any) -> int:
        row: int = add(self, request)
        mask = self.allowed_token_ids_mask_cpu_tensor
        if mask is not None and request.req_id not in self.has_allowed_token_ids:
            mask[row].fill_(False)
        return row

    def swap_states(self: Any, i1: int, i2: int) -> None:
        mask = self.allowed_token_ids_mask_cpu_tensor
        if mask is None:
            swap(self, i1, i2)
            return
        rows = mask[[i2, i1]]
        swap(self, i1, i2)
        mask[[i1, i2]] = rows

    batch.add_request, batch.swap_states = add_request, swap_states
