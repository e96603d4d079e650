"""The one place where tests start engines without a host; hosts/host.py: start is the place for engines behind hosts.

in_process     a backend in the test's own process, stepped by hand (backends.py: run); vLLM's core has its own
own_process    an engine in a process of its own, behind its client, as a host has it
preparer       what makes vLLM's requests of generations, without the engine
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

from lmi.model.backend import load_backend
from lmi.model.options import Settings
from lmi.model.process.client import EngineClient
from lmi.model.vllm.options import engine_arguments
from lmi.model.vllm.request.chat import ChatRenderer
from lmi.model.vllm.request.requests import Requests
from lmi.model.vllm.start import make_core
from lmi.model.vllm.typical import Typical

__all__ = [
    "EngineClient",
    "engine_arguments",
    "in_process",
    "own_process",
    "preparer",
]


def in_process(settings: Settings) -> Any:
    """The backend on vLLM that `settings` choose, started; raises what fails its start. Ended by its `close`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="test-engine", daemon=True)
    thread.start()

    async def start() -> Any:
        backend: Any = load_backend(settings)
        try:
            await backend.begin()
        except BaseException:
            backend.close()
            raise
        return backend

    try:
        backend = asyncio.run_coroutine_threadsafe(start(), loop).result()
    except BaseException:
        _end(loop, thread)
        raise
    return OnLoop(backend, loop, thread)


class OnLoop:
    """A backend on an event loop, as tests that step it by hand see it: what is called on the loop, they wait for."""

    def __init__(self, backend: Any, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        self._backend = backend
        self._on = loop
        self._thread = thread

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def add(self, prepared: Any) -> None:
        """As of its own number."""
        self._call(self._backend.add, prepared.number, prepared)

    def abort(self, numbers: Sequence[int]) -> None:
        self._call(self._backend.abort, numbers)

    def step(self) -> list[Any]:
        """What the core sends next."""
        return [*asyncio.run_coroutine_threadsafe(self._backend.receive(), self._on).result(60)]

    def core_works(self) -> bool:
        """Whether vLLM's core has anything to do: what it is still to be told, it has been told."""
        asked = self._backend._core._client.call_utility_async("has_work")
        return bool(asyncio.run_coroutine_threadsafe(asked, self._on).result(60))

    def core_ends(self) -> bool:
        """Whether it soon has nothing to do any more."""
        return any(not self.core_works() for _ in range(50))

    def close(self) -> None:
        self._call(self._backend.close)
        _end(self._on, self._thread)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        async def call() -> None:
            function(*arguments)

        asyncio.run_coroutine_threadsafe(call(), self._on).result(60)


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def own_process(settings: Settings, **arguments: Any) -> EngineClient:
    """A client of an engine that its `start` starts and its `close` ends. `arguments`: EngineClient's own."""
    return EngineClient(settings, **arguments)


def preparer(settings: Settings) -> Requests:
    """For generations without beams and adapters; its `_core` is vLLM's front, which has not been started."""
    core = make_core(settings)
    core.tasks = ("generate",)
    nothing: Any = None
    return Requests(core, settings, ChatRenderer(core, settings), nothing, Typical(settings), nothing)
