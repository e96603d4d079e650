"""The engine as hosts see it.

    host's process                                  engine's process (model/backend.py)
    Engine.submit(generation, sink) --- Add ------> prepare, add
    Engine.abort(ticket)            --- Abort ----> abort
    Engine.release(ticket)          --- Release --> add, of what was held back: sink(Rendered) came first
    sink(event), listener()         <-- Step ------ AsyncBackend.receive, or Backend.step again and again while busy

A host knows `Engine` only; model/process/client.py implements it for every backend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

import msgspec

from .adapters.adapter import Adapter
from .conversation import MediaKind
from .errors import LmiError
from .events import EngineEvent
from .generation import Generation

__all__ = ["MANY", "Engine", "EngineAdapters", "EngineInfo", "EngineStats", "Listener", "Sink"]

MANY = 999
"""How many media of a kind a prompt may have where there is no limit."""

Sink = Callable[[EngineEvent], None]
"""Takes the events of one generation, in order, on the engine's thread; must be quick and must not raise.

Never on two threads at once, though a failure may come on another one (Engine.deliver)."""

Listener = Callable[[], None]
"""Called after the sinks have got what one step brought, on the engine's thread, and after it has ended; never while
any sink is being called, or another listener."""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an engine once it is up."""

    engine: str
    version: str
    context: int
    """The longest prompt plus answer, in tokens; of models that embed the longest prompt."""
    images: int = 0
    """How many images a prompt may have; 0: the model takes none."""
    audio: int = 0
    video: int = 0
    image_embeds: int = 0
    transcribes: bool = False
    """Whether it writes down what is said (Generation.transcription)."""
    answers: bool = True
    """Whether it takes other prompts than audio to be written down."""
    adapters: tuple[Adapter, ...] = ()
    """Those that are registered; the host says so, who registers them."""

    def limit(self, kind: MediaKind) -> int:
        """How many media of a kind a prompt may have."""
        limits = {"image": self.images, "audio": self.audio, "video": self.video, "image_embeds": self.image_embeds}
        return limits[kind]


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """How busy an engine is."""

    running: int = 0
    """How many sequences are being computed."""
    waiting: int = 0
    """How many wait for room in the batch or in the cache."""
    passed_over: int = 0
    """How many of these the scheduler could not take in their turn: all slots of adapters were taken by others, or a
    grammar or a cache of elsewhere was not there yet."""
    waiting_for_adapter: int = 0
    """How many generations wait until their adapter is loaded."""
    adapter_loads: int = 0
    """How often an adapter has been loaded since the engine's start."""
    cache_usage: float = 0.0
    """How much of the KV cache is in use, from 0 to 1."""


class EngineAdapters(Protocol):
    """The adapters of an engine, which has them again after each rebuild. For any thread."""

    faults: dict[str, LmiError]
    """By key, what kept one from being loaded when the engine last started."""

    def add(self, adapter: Adapter) -> Future[None]:
        """Registers an adapter, or pins one; before the engine's start, for that. Its failure, an LmiError, registers
        nothing."""
        ...

    def remove(self, key: str) -> None:
        """Ends it; generations that use it end as if it were there."""
        ...


class Engine(Protocol):
    """The engine as hosts see it."""

    @property
    def healthy(self) -> bool:
        """Whether `submit` would be served now."""
        ...

    @property
    def down_reason(self) -> str:
        """Why it is down, or was last; of several hosts it names the one that is gone."""
        ...

    @property
    def running(self) -> int:
        """How many generations have been submitted and have not ended."""
        ...

    @property
    def stats(self) -> EngineStats:
        """How busy it is, at most a second old; zeros while it is down."""
        ...

    @property
    def deaths(self) -> int:
        """How often it has ended without having been closed."""
        ...

    @property
    def rebuilds(self) -> int:
        """How often it has been rebuilt."""
        ...

    @property
    def process_id(self) -> int | None:
        """Its process, while one is up."""
        ...

    def start(self) -> EngineInfo:
        """Starts the engine; raises StartError."""
        ...

    def submit(self, generation: Generation, sink: Sink) -> int:
        """Starts a generation and returns a ticket for `abort`; never waits for the engine.

        What is wrong with the request comes as a Failed event. Raises UnavailableError while there is no engine.
        """
        ...

    def release(self, tickets: Sequence[int]) -> None:
        """Starts generations that are held back, each after its Rendered. Unknown tickets are ignored."""
        ...

    def abort(self, tickets: Sequence[int]) -> None:
        """Ends generations; nothing more comes of them. Unknown tickets are ignored."""
        ...

    def gather(self, seconds: float) -> None:
        """Has streams that show no single tokens bring nothing for so many seconds after each Delta: for a host that is
        behind. An engine that has been rebuilt, or cannot do so, brings all as it comes.
        """
        ...

    def read_on(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Has sinks and listeners called on an event loop from one of the next steps on; None: on a thread of the
        engine's, as before. For any thread. To be taken back before the loop is closed.
        """
        ...

    def read_ready(self) -> None:
        """Has sinks and listeners called of the steps that are there. On the event loop that `read_on` has named, for a
        callback that would keep it from them.
        """
        ...

    def deliver(self, sink: Sink, event: EngineEvent) -> None:
        """Delivers `event` to a sink that the engine does not tell of it, never while another thread delivers one.

        For what ends a request from outside, and generations that were not submitted. For any thread that is in no sink
        or listener.
        """
        ...

    def listen(self, listener: Listener) -> None:
        """Adds a listener."""
        ...

    def scrape(self, content_type: str) -> Future[bytes]:
        """Its own metrics, as text for Prometheus; nothing where it has none, or is down. It may never be done."""
        ...

    @property
    def adapters(self) -> EngineAdapters:
        """The adapters in it."""
        ...

    def close(self) -> None:
        """Ends the engine and whatever runs in it."""
        ...
