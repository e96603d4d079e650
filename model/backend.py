"""What runs in the engine's process, and the table of it.

Ours is vLLM (`AsyncBackend`), with a class for each kind of task in BACKENDS. A user's is a file in the model
directory, or an installed module, that `option.backend=module:name` names: a class of the shape of `Backend`, or a
function that returns one. Neither needs to know anything of processes, threads or dialects.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from .engine import EngineInfo, EngineStats
from .errors import OptionError, UnsupportedError
from .events import EngineEvent, Started
from .generation import Generation
from .media.parts import MediaFile
from .options import Settings

__all__ = [
    "BACKENDS",
    "AsyncBackend",
    "Backend",
    "BackendBase",
    "limits",
    "load_backend",
    "start_part",
    "tokenized",
    "users_backend",
]


class BackendBase(Protocol):
    """What runs in the engine's process. Constructed with Settings, which raises StartError or anything else.

    One that has adapters has an attribute `adapters`, an AdapterLoader (model/adapters/adapter.py); one that has
    metrics of its own, a method `metrics(content_type) -> bytes` for Prometheus, which is called on another thread. One
    that can tell a prompt's tokens has a method `tokenize(generation, images=()) -> Started`, which is called instead
    of `prepare`, and on its threads, where nothing else is wanted (Generation.tokenize). One that can let a
    stream's text gather has a method `gather(seconds)` (Engine.gather). One that prepares a conversation with tools as
    fast as one without, once it has seen the same tools, has a method `knows(conversation) -> bool`.
    """

    @property
    def info(self) -> EngineInfo: ...

    @property
    def busy(self) -> bool:
        """Whether anything runs."""
        ...

    def prepare(self, number: int, generation: Generation, images: Sequence[MediaFile] = ()) -> Any:
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

    def step(self) -> Sequence[tuple[int, EngineEvent]]:
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

    async def receive(self) -> Sequence[tuple[int, EngineEvent]]:
        """What is new, by generation; nothing where a step brought nothing. Raises when the engine has failed."""
        ...


BACKENDS = {
    "vllm": "lmi.model.vllm.engine:VllmEngine",
    "vllm-embedding": "lmi.model.vllm.pooling.embedding:VllmEmbedding",
    "vllm-scoring": "lmi.model.vllm.pooling.scoring:VllmScoring",
}
"""Name to "module:class" of a backend. The module is imported in the engine's process."""


def load_backend(settings: Settings) -> Backend | AsyncBackend:
    """The backend that `settings.backend` names, started; raises OptionError where the user's own is not there."""
    if settings.backend not in BACKENDS:
        return _users_backend(settings)
    module, _, name = BACKENDS[settings.backend].partition(":")
    return cast("Backend | AsyncBackend", getattr(importlib.import_module(module), name)(settings))


PART = "lmi.model.vllm.start:start_headless"
"""As in BACKENDS: what starts a follower's part, which vLLM alone has."""


def start_part(settings: Settings) -> EngineInfo:
    """Starts what this host, a follower, has of an engine whose core is on another one; this process ends when any of
    it ends. Raises whatever the engine raises.
    """
    module, _, name = PART.partition(":")
    return cast("EngineInfo", getattr(importlib.import_module(module), name)(settings))


def users_backend(settings: Settings) -> Callable[[Settings], Any]:
    """What makes the user's own backend; raises OptionError where it is not there."""
    place = settings.backend
    module, _, name = place.partition(":")
    # Ahead, as in DJL's worker.
    if settings.model_dir not in sys.path:
        sys.path.insert(0, settings.model_dir)
    try:
        return cast("Callable[[Settings], Any]", getattr(importlib.import_module(module), name))
    except (ImportError, AttributeError) as error:
        raise OptionError.of("backend", f"{place!r}: {error}") from error


def _users_backend(settings: Settings) -> Backend | AsyncBackend:
    backend = users_backend(settings)(settings)
    if settings.content_filter and not hasattr(backend, "prompt_text"):
        why = f"{settings.backend} has no prompt_text, which gives the filter the prompts to judge"
        raise OptionError.of("content_filter", why)
    return cast("Backend | AsyncBackend", backend)


def tokenized(backend: BackendBase, generation: Generation, images: Sequence[MediaFile] = ()) -> Started:
    """The tokens of a prompt; raises RequestError, UnsupportedError where the backend cannot tell them."""
    tell: Callable[[Generation, Sequence[MediaFile]], Started] | None = getattr(backend, "tokenize", None)
    if tell is None:
        raise UnsupportedError(f"the engine {backend.info.engine} does not tell how a prompt is tokenized")
    return tell(generation, images)


def limits() -> dict[str, Mapping[str, str]]:
    """What each backend refuses, ignores or honours with a reservation only: by its name, then by field of Sampling (or
    kv_transfer_params), in words for docs/parameters.md. Loads no backend's library.

    A backend's class says so in `limits: ClassVar[Mapping[str, str]]`; what is not in it, it honours. One without
    `limits` generates no text.
    """
    found: dict[str, Mapping[str, str]] = {}
    for backend, place in BACKENDS.items():
        module, _, name = place.partition(":")
        made = getattr(importlib.import_module(module), name)
        if hasattr(made, "limits"):
            found[backend] = made.limits
    return found
