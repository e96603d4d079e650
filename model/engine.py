"""The two sides of an engine, and the table of engines.

    host's process                                  engine's process
    Engine.submit(generation, sink) --- Add ------> prepare, add
    Engine.abort(ticket)            --- Abort ----> abort
    Engine.release(ticket)          --- Release --> add, of what was held back: sink(Rendered) came first
    sink(event), listener()         <-- Step ------ AsyncBackend.receive, or Backend.step again and again while busy

A host knows `Engine` only (model/process/client.py implements it for every backend). A backend of ours is a folder
beside this file and one line in ENGINES. One of a user's is a file in the model directory, or an installed module, that
`option.backend=module:name` names: a class of the shape of `Backend`, or a function that returns one. Either needs to
know nothing of processes, threads or dialects.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, cast

import msgspec

from .adapters.adapter import Adapter
from .errors import LmiError, OptionError
from .events import EngineEvent, Event
from .generation import Generation
from .media.images import Image
from .options import Settings

__all__ = [
    "ENGINES", "AsyncBackend", "Backend", "BackendBase", "Engine", "EngineAdapters", "EngineInfo", "EngineStats",
    "Listener", "Sink", "limits", "load_backend", "start_part",
]  # fmt: skip

Sink = Callable[[EngineEvent], None]
"""Takes the events of one generation, in order, on the engine's thread; must be quick and must not raise.

Never on two threads at once, though a failure may come on another one (Engine.fail)."""

Listener = Callable[[], None]
"""Called after the sinks have got what one step brought, on the engine's thread, and after Engine.fail; never while any
sink is being called, or another listener."""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an engine once it is up."""

    engine: str
    version: str
    context: int
    """The longest prompt plus answer, in tokens; of models that embed the longest prompt."""
    images: int = 0
    """How many images a prompt may have; 0: the model takes none."""
    adapters: tuple[Adapter, ...] = ()
    """Those that are registered; the host says so, who registers them."""


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

    def fail(self, tickets: Sequence[int], error: LmiError) -> None:
        """Ends generations with `error`, which their sinks get as from the engine: never while one of them is running.

        For any thread; does not wait for the engine. Unknown tickets are ignored.
        """
        ...

    def deliver(self, sink: Sink, event: EngineEvent) -> None:
        """Delivers `event` to a sink whose generation was not submitted, never while another thread delivers one.

        For requests of several generations, whose sinks feed one reply. For any thread that is in no sink or listener.
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


class BackendBase(Protocol):
    """What runs in the engine's process. Constructed with Settings, which raises StartError or anything else.

    One that has adapters has an attribute `adapters`, an AdapterLoader (model/adapters/adapter.py); one that has
    metrics of its own, a method `metrics(content_type) -> bytes` for Prometheus, which is called on another thread.
    """

    @property
    def info(self) -> EngineInfo: ...

    @property
    def busy(self) -> bool:
        """Whether anything runs."""
        ...

    def prepare(self, number: int, generation: Generation, images: Sequence[Image] = ()) -> Any:
        """The slow part of starting a generation (tokenizing, decoding, checks), on another thread than the rest.

        With images, those of the conversation in their order, it may run on several threads at once. Raises
        RequestError.
        """
        ...

    def tokens(self, prepared: Any) -> int:
        """How many tokens what `prepare` returned may come to: of each sequence the prompt's and those it generates."""
        ...

    def prompt_text(self, prepared: Any) -> str:
        """The prompt of what `prepare` returned, as text: for Rendered, on the same thread as `prepare`."""
        ...

    def abort(self, numbers: Sequence[int]) -> None:
        """Ends generations without a further event."""
        ...

    def stats(self) -> EngineStats:
        """How busy it is; asked about once a second."""
        ...

    def close(self) -> None: ...


class Backend(BackendBase, Protocol):
    """One that is driven step by step, on one thread. What has no images, it prepares on one thread too."""

    def add(self, prepared: Any) -> None:
        """Starts what `prepare` returned; between two steps. Raises RequestError."""
        ...

    def step(self) -> list[tuple[int, Event]]:
        """Generates on and returns what is new, by generation. Raises when the engine failed."""
        ...


class AsyncBackend(BackendBase, Protocol):
    """One that an event loop drives: it is constructed there, and nothing that is called there waits.

    It prepares on several threads at once. process/stepper.py makes one of a Backend.
    """

    async def begin(self) -> None:
        """What is left of the start; raises as the constructor does."""
        ...

    def add(self, number: int, prepared: Any) -> None:
        """Starts what `prepare` returned for this generation. Raises RequestError."""
        ...

    async def receive(self) -> Sequence[tuple[int, Event]]:
        """What is new, by generation; nothing where a step brought nothing. Raises when the engine has failed."""
        ...


ENGINES = {
    "vllm": "lmi.model.vllm.engine:VllmEngine",
    "transformers": "lmi.model.transformers.engine:TransformersEngine",
    "auto": "lmi.model.auto:first_that_runs",
    "vllm-embedding": "lmi.model.vllm.embedding:VllmEmbedding",
}
"""Name to "module:class" of a backend, or function that returns one. The module is imported in the engine's process."""


def load_backend(settings: Settings) -> Backend | AsyncBackend:
    """The backend that `settings.engine` names, started; raises OptionError where the user's own is not there."""
    if settings.engine not in ENGINES:
        return _users_backend(settings)
    module, _, name = ENGINES[settings.engine].partition(":")
    return cast("Backend | AsyncBackend", getattr(importlib.import_module(module), name)(settings))


PART = "lmi.model.vllm.start:start_headless"
"""As in ENGINES: what starts a follower's part, which vLLM alone has."""


def start_part(settings: Settings) -> EngineInfo:
    """Starts what this host, a follower, has of an engine whose core is on another one; this process ends when any of
    it ends. Raises whatever the engine raises.
    """
    module, _, name = PART.partition(":")
    return cast("EngineInfo", getattr(importlib.import_module(module), name)(settings))


def _users_backend(settings: Settings) -> Backend | AsyncBackend:
    place = settings.engine
    module, _, name = place.partition(":")
    # Ahead, as in DJL's worker.
    if settings.model_dir not in sys.path:
        sys.path.insert(0, settings.model_dir)
    try:
        make = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise OptionError(f"option.backend: {place!r}: {error}", "backend") from error
    backend = make(settings)
    if settings.content_filter and not hasattr(backend, "prompt_text"):
        message = f"option.content_filter: {place} has no prompt_text, which gives the filter the prompts to judge"
        raise OptionError(message, "content_filter")
    return cast("Backend | AsyncBackend", backend)


def limits() -> dict[str, Mapping[str, str]]:
    """What each engine refuses, ignores or honours with a reservation only: by engine, then by field of Sampling (or
    kv_transfer_params), in words for docs/parameters.md. Loads no engine's library.

    A backend's class says so in `limits: ClassVar[Mapping[str, str]]`; what is not in it, it honours. One without
    `limits` generates no text.
    """
    found: dict[str, Mapping[str, str]] = {}
    for engine, place in ENGINES.items():
        module, _, name = place.partition(":")
        backend = getattr(importlib.import_module(module), name)
        # A function chooses among the others.
        if hasattr(backend, "limits"):
            found[engine] = backend.limits
    return found
