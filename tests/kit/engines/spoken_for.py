"""A backend on vLLM whose core has no process: it takes requests, and a test says what it sends.

The bytes and vLLM's decoder are the real ones. All of it is on the event loop of the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from lmi.model.backend import load_backend
from lmi.model.options import Settings
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
        self.outputs_queue.put_nowait(self.encoded(*outputs, copy=copy))

    def encoded(self, *outputs: Any, copy: int = 0) -> Any:
        """That, as bytes."""
        from vllm.v1.engine import EngineCoreOutputs

        return self._encoder.encode(EngineCoreOutputs(engine_index=copy, outputs=[*outputs], timestamp=1.0))

    async def get_output_async(self) -> Any:
        sent = await self.outputs_queue.get()
        return self.decoder.decode(sent) if isinstance(sent, Sequence) else sent

    async def add_request_async(self, request: Any) -> None:
        self.requests.append(request)

    async def abort_requests_async(self, names: Sequence[str]) -> None:
        self.aborted += names

    def shutdown(self) -> None: ...


def engine_spoken_for(settings: Settings, task: str = "generate") -> tuple[Any, Client]:
    """A backend whose core can do a task of vLLM's, and what stands for its core's client. One that generates: on a
    running event loop.
    """
    client = Client()
    with client_is(client):
        engine: Any = load_backend(settings)
    engine._core.tasks = (task,)
    return engine, client
