"""vLLM's adapters: what loads one into the core, and what a request says that names one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from ..adapters.adapter import Adapter, name_of_key
from ..adapters.files import read_adapter
from ..errors import AdapterError, Fault, UnsupportedError, one_line
from .core import Core
from .library.internals import scales_by_module
from .library.parts import part

__all__ = ["VllmAdapters", "no_adapter"]

CALL_FAILED = " method failed: "
"""What vLLM puts between the name of a call and why it failed (v1/engine/core.py)."""


def no_adapter(key: str) -> Any:
    """In place of `VllmAdapters.request` where there are none."""
    raise UnsupportedError.because(Fault("adapter", "this engine has none (option.enable_lora)"))


class VllmAdapters:
    """An AdapterLoader (model/adapters/adapter.py) on vLLM's core."""

    def __init__(self, core: Core) -> None:
        config = core.vllm_config.lora_config
        assert config is not None
        self._core = core
        self._max_rank: int = config.max_lora_rank
        self._base: dict[str, Any] = core.model_config.hf_config.to_dict()
        self.most_loaded: int = config.max_cpu_loras or config.max_loras
        self.slots: int = config.max_loras
        self.most_pinned: int = min(config.max_loras, self.most_loaded) - 1
        self._requests: dict[str, Any] = {}
        self._signatures: dict[str, list[tuple[str, int, int]]] = {}
        """Of each adapter its files as they were when it was registered."""

    def know(self, adapter: Adapter) -> None:
        """Lets `request` give it."""
        made = part("vllm.lora.request:LoRARequest")
        # vLLM takes a path that is none for a name on the hub, and would download it.
        self._requests[adapter.key] = made(lora_name=adapter.key, lora_int_id=adapter.number, lora_path=adapter.path)
        self._signatures[adapter.key] = _signature(adapter.path)

    def forget(self, adapter: Adapter) -> None:
        """Ends that."""
        self._requests.pop(adapter.key, None)
        self._signatures.pop(adapter.key, None)

    def request(self, key: str) -> Any:
        """vLLM's LoRARequest; raises AdapterError. On any thread."""
        if (request := self._requests.get(key)) is None:
            raise AdapterError(f"the adapter {name_of_key(key)} has been unregistered", "adapter")
        return request

    async def load(self, adapter: Adapter) -> None:
        """Checks the files, which vLLM does not do against the model, and loads them; raises AdapterError."""
        await asyncio.to_thread(self._check, adapter)
        request = self._requests[adapter.key]
        try:
            await self._core.add_lora(request)
        except Exception as error:
            # What failed halfway would count as loaded the next time.
            await self.unload(adapter)
            raise AdapterError(_cause(error)) from error

    async def pin(self, adapter: Adapter) -> None:
        """Keeps it in its slot; raises AdapterError."""
        try:
            await self._core.pin_lora(adapter.number)
        except Exception as error:
            raise AdapterError(_cause(error)) from error

    async def unload(self, adapter: Adapter) -> None:
        """Lets vLLM forget it."""
        await self._core.remove_lora(adapter.number)

    def _check(self, adapter: Adapter) -> None:
        if not Path(adapter.path).is_dir():
            raise AdapterError(f"{adapter.path} is not there any more")
        if _signature(adapter.path) != self._signatures.get(adapter.key):
            # Its prefixes are cached under its key.
            raise AdapterError(f"the files in {adapter.path} have changed since it was registered: register it anew")
        files = read_adapter(Path(adapter.path), base=self._base, max_rank=self._max_rank)
        if files.own_scales and not scales_by_module():
            raise AdapterError("rank_pattern and alpha_pattern: this vLLM does not have them, and would answer wrongly")


def _signature(path: str) -> list[tuple[str, int, int]]:
    """Name, size and time of each file."""
    try:
        files = sorted(Path(path).iterdir())
        return [(file.name, (status := file.stat()).st_size, status.st_mtime_ns) for file in files if file.is_file()]
    except OSError:
        return []


def _cause(error: Exception) -> str:
    text = str(error)
    return one_line(text.partition(CALL_FAILED)[2] or text)
