"""The one place where tests start engines without a host; hosts/host.py: start is the place for engines behind hosts.

in_process     a backend in the test's own process, stepped by hand (backends.py: run); vLLM's core has its own
own_process    an engine in a process of its own, behind its client, as a host has it
front          what makes vLLM's requests of generations, without the engine
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from lmi.model.backend import load_backend
from lmi.model.options import Settings
from lmi.model.process.client import EngineClient
from lmi.model.vllm.core import Core
from lmi.model.vllm.options import engine_arguments
from lmi.model.vllm.request.chat import ChatRenderer
from lmi.model.vllm.request.requests import Requests
from lmi.model.vllm.request.transcription import transcriber
from lmi.model.vllm.start import make_core
from lmi.model.vllm.typical import Typical

__all__ = [
    "EngineClient",
    "Front",
    "engine_arguments",
    "front",
    "in_process",
    "own_process",
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
        self.backend = backend
        self.loop = loop
        self._thread = thread

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    @property
    def core(self) -> Core:
        """vLLM's, as the backend has it."""
        found: Core = self.backend._core
        return found

    def add(self, prepared: Any) -> None:
        """As of its own number."""
        self._call(self.backend.add, prepared.number, prepared)

    def abort(self, numbers: Sequence[int]) -> None:
        self._call(self.backend.abort, numbers)

    def step(self) -> list[Any]:
        """What the core sends next."""
        return [*self.wait(self.backend.receive())]

    def wait(self, call: Coroutine[Any, Any, Any]) -> Any:
        """What a coroutine returns that runs on the loop."""
        return asyncio.run_coroutine_threadsafe(call, self.loop).result(60)

    def ask_core(self, utility: str) -> Any:
        """What vLLM's core says to one of its own calls, by name: what it is still to be told, it has been told."""
        client: Any = self.core._client
        return self.wait(client.call_utility_async(utility))

    @property
    def unread(self) -> int:
        """How many steps of the core's nobody has taken yet."""
        reader: Any = self.core._reader
        return len(reader)

    def core_ends(self) -> bool:
        """Whether it soon has nothing to do any more."""
        return any(not self.ask_core("has_work") for _ in range(50))

    def close(self) -> None:
        self._call(self.backend.close)
        _end(self.loop, self._thread)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        async def call() -> None:
            function(*arguments)

        self.wait(call())


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


def own_process(settings: Settings, **arguments: Any) -> EngineClient:
    """A client of an engine that its `start` starts and its `close` ends. `arguments`: EngineClient's own."""
    return EngineClient(settings, **arguments)


class Front(NamedTuple):
    """vLLM's core, which has not been started, and what makes its requests."""

    core: Core
    requests: Requests


def front(settings: Settings) -> Front:
    """For generations without beams and adapters."""
    core = make_core(settings)
    core.tasks = ("generate",)
    nothing: Any = None
    chat = ChatRenderer(core, settings)
    writer = transcriber(core, chat.media)
    return Front(core, Requests(core, settings, chat, nothing, Typical(settings), nothing, writer))
