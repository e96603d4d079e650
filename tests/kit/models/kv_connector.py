"""A connector of KV caches for vLLM that transfers nothing and tells what it was told (kv_transfer_params)."""

from __future__ import annotations

from typing import Any, ClassVar

from vllm.distributed.kv_transfer.kv_connector.v1 import (  # noqa: TID253 - only vLLM imports this file
    KVConnectorBase_V1,
)
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata  # noqa: TID253

__all__ = ["EchoConnector"]


class EchoConnector(KVConnectorBase_V1):  # type: ignore[misc, unused-ignore] # untyped in some versions
    """`kv_transfer_params` come back with a request's end, under `told`, those of all earlier ones under `before`."""

    ended: ClassVar[list[Any]] = []

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        pass

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return KVConnectorMetadata()

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        told = {"told": request.kv_transfer_params, "blocks": tuple(block_ids), "before": list(self.ended)}
        self.ended.append(request.kv_transfer_params)
        return False, told

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        pass

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        pass

    def wait_for_save(self) -> None:
        pass
