"""A connector of KV caches for vLLM's core that holds a step up, or the blocks of a request for ever, and tells when
requests reach the core.

By kv_transfer_params: {"step_s": 2.0} makes the step that begins the request take so long, {"kept": true} keeps its
blocks after its end. Each request that reaches the core is a line, its name and time.monotonic(), in the file that
LMI_TEST_ARRIVALS names.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from kv_connector import EchoConnector  # type: ignore[import-not-found] # beside this file
from vllm.v1.engine import core  # noqa: TID253 - only vLLM imports this file

__all__ = ["SlowConnector"]


def note(name: str) -> None:
    """Writes a line."""
    with Path(os.environ["LMI_TEST_ARRIVALS"]).open("a") as file:
        file.write(f"{name} {time.monotonic()}\n")


class SlowConnector(EchoConnector):  # type: ignore[misc, unused-ignore]
    """What requests ask for."""

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if seconds := (request.kv_transfer_params or {}).get("step_s"):
            note("step")
            time.sleep(seconds)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return bool((request.kv_transfer_params or {}).get("kept")), None


def _telling(self: Any, request: Any) -> Any:
    note(request.request_id)
    return _preprocess(self, request)


_preprocess = core.EngineCore.preprocess_add_request
core.EngineCore.preprocess_add_request = _telling
