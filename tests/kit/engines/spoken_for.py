"""A backend on vLLM whose core has no process: it takes requests, and a test says what it sends.

The bytes and vLLM's decoder are the real ones. All of it is on the event loop of the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from lmi.model.options import Settings
from lmi.model.vllm.engine import VllmEngine
from tests.microbench.standin import client_is

__all__ = ["Client", "engine_spoken_for"]


class Client:
    """In the place of vLLM's asynchronous client."""

    def __init__(self) -> None:
        from vllm.v1.engine import EngineCoreOutputs
        from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

        self._encoder, self.decoder = MsgpackEncoder(), MsgpackDecoder(EngineCoreOutputs)
        self.outputs_queue: asyncio.Queue[Any] = asyncio.Queue()
        self.requests: list[Any] = []
        """Those that the core was sent."""
        self.aborted: list[str] = []

    def say(self, *outputs: Any, copy: int = 0) -> None:
        """Sends EngineCoreOutputs of one step, as one of the model's copies."""
        from vllm.v1.engine import EngineCoreOutputs

        self.outputs_queue.put_nowait(
            self._encoder.encode(EngineCoreOutputs(engine_index=copy, outputs=[*outputs], timestamp=1.0))
        )

    async def get_output_async(self) -> Any:
        sent = await self.outputs_queue.get()
        return self.decoder.decode(sent) if isinstance(sent, Sequence) else sent

    async def add_request_async(self, request: Any) -> None:
        self.requests.append(request)

    async def abort_requests_async(self, names: Sequence[str]) -> None:
        self.aborted += names

    def shutdown(self) -> None: ...


def engine_spoken_for(settings: Settings) -> tuple[VllmEngine, Client]:
    """A backend that has begun, and what stands for its core's client. On a running event loop."""
    client = Client()
    with client_is(client):
        engine = VllmEngine(settings)
    engine._core.tasks = ("generate",)
    return engine, client
