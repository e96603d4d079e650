"""What loads adapters into an engine, without one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lmi.model.adapters.adapter import Adapter


def adapter(name: str, number: int, *, preload: bool = True, pin: bool = False) -> Adapter:
    """A registration of it; its key is `name#number`."""
    return Adapter(name, number, f"/adapters/{name}", preload, pin)


class Loader:
    """An AdapterLoader that holds nothing, and says in `faults` what vLLM's core would not have taken well."""

    def __init__(self, most_loaded: int = 2, most_pinned: int = 1) -> None:
        self.most_loaded = most_loaded
        self.slots = most_pinned + 1
        self.most_pinned = most_pinned
        self.known: set[str] = set()
        self.loaded: list[str] = []
        self.pinned: set[str] = set()
        self.told: list[str] = []
        """What was done, as "load a#1"."""
        self.errors: dict[str, Exception] = {}
        """By key: what its load raises."""
        self.unload_errors: dict[str, Exception] = {}
        self.pin_errors: dict[str, Exception] = {}
        self.faults: list[str] = []
        self.in_use: Callable[[str], bool] = lambda key: False
        self.pause: Callable[[], int] = lambda: 0
        """How often what is loaded lets others go first."""
        self.held: asyncio.Event | None = None
        """What loading waits for."""

    def know(self, adapter: Adapter) -> None:
        self.known.add(adapter.key)

    def forget(self, adapter: Adapter) -> None:
        self._expect(not self.in_use(adapter.key), f"{adapter.key} is forgotten while it is in use")
        self.known.discard(adapter.key)

    async def load(self, adapter: Adapter) -> None:
        key = adapter.key
        self.told.append(f"load {key}")
        await self._wait()
        self._expect(key in self.known, f"{key} is loaded, of which nothing is known")
        self._expect(key not in self.loaded, f"{key} is loaded twice")
        if (error := self.errors.get(key)) is not None:
            raise error
        self._expect(len(self.loaded) < self.most_loaded, f"{key} is one too many beside {self.loaded}")
        self.loaded.append(key)
        await self._wait()

    async def pin(self, adapter: Adapter) -> None:
        key = adapter.key
        self.told.append(f"pin {key}")
        self._expect(key in self.loaded, f"{key} is pinned without being loaded")
        if (error := self.pin_errors.get(key)) is not None:
            raise error
        self.pinned.add(key)
        self._expect(len(self.pinned) <= self.most_pinned, f"{key} is pinned beside {self.pinned}")
        await self._wait()

    async def unload(self, adapter: Adapter) -> None:
        key = adapter.key
        self.told.append(f"unload {key}")
        self._expect(key in self.loaded, f"{key} is unloaded without being loaded")
        self._expect(not self.in_use(key), f"{key} is unloaded while it is in use")
        if key in self.loaded:
            self.loaded.remove(key)
        self.pinned.discard(key)
        if (error := self.unload_errors.get(key)) is not None:
            raise error
        await self._wait()

    async def _wait(self) -> None:
        for _ in range(self.pause()):
            await asyncio.sleep(0)
        if self.held is not None:
            await self.held.wait()

    def _expect(self, condition: bool, fault: str) -> None:
        if not condition:
            self.faults.append(fault)
