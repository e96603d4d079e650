"""An adapter as it is registered, and what an engine does with it."""

from __future__ import annotations

from typing import Protocol

import msgspec

__all__ = ["Adapter", "AdapterLoader", "name_of_key"]


class Adapter(msgspec.Struct, frozen=True, array_like=True):
    """A registration. It travels to the engine's process as msgpack."""

    name: str
    """What requests call it."""
    number: int
    """Of the registration, from 1 on; never used for another."""
    path: str
    """Its folder; absolute."""
    preload: bool = True
    """Whether it is loaded at once, or when a request first names it."""
    pin: bool = False
    """Whether it stays in a slot of the device."""

    @property
    def key(self) -> str:
        """What the engine calls it. New weights under an old name have another key, for vLLM's prefix cache goes by the
        name that it is told, and would answer from the old ones."""
        return f"{self.name}#{self.number}"


def name_of_key(key: str) -> str:
    """The name of a registration by its key."""
    return key.rpartition("#")[0]


class AdapterLoader(Protocol):
    """What an AsyncBackend with adapters has as its attribute `adapters`. On the event loop."""

    @property
    def most_loaded(self) -> int:
        """How many may be loaded at once."""
        ...

    @property
    def slots(self) -> int:
        """How many one batch may mix; without it, all that are loaded."""
        ...

    @property
    def most_pinned(self) -> int:
        """How many of them may be pinned."""
        ...

    def know(self, adapter: Adapter) -> None:
        """Lets `prepare` take requests for it, loaded or not."""
        ...

    def forget(self, adapter: Adapter) -> None:
        """Ends that."""
        ...

    async def load(self, adapter: Adapter) -> None:
        """Loads it; raises AdapterError, and leaves nothing behind then."""
        ...

    async def pin(self, adapter: Adapter) -> None:
        """Pins one that is loaded; raises AdapterError."""
        ...

    async def unload(self, adapter: Adapter) -> None:
        """Unloads it; no request uses it."""
        ...
