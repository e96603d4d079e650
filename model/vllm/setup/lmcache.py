"""LMCache, which keeps the KV cache of prompts in the machine's memory, on its disks, or elsewhere.

    options --check--> the package is there --configure--> LMCACHE_* in the environment that vLLM's processes get

The rules of `option.lmcache_auto_config` are djl_python's (lmcache_utils.py, 0.36).
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
from pathlib import Path
from typing import NamedTuple

from ...errors import OptionError, one_line
from ...options import Settings
from ...options.lmcache import naming_lmcache

__all__ = ["CacheSizes", "auto_environment", "cache_sizes", "configure", "folder_size", "is_missing"]

log = logging.getLogger(__name__)

GIB = 1 << 30
FOLDER = "/tmp/lmcache"
DISK = "/tmp"
"""The disk that FOLDER is on: on GPU instances the local NVMe."""
KEPT_SHARE = 0.2
KEPT_MODELS = 2
"""What is left to others of the memory and of the disk: the larger of this share and of so many times the weights."""


class CacheSizes(NamedTuple):
    """GiB for each of vLLM's workers, which has an LMCache of its own."""

    memory: float
    disk: float


def cache_sizes(model: int, memory: int, disk: int, workers: int) -> CacheSizes:
    """The sizes of the caches, where the weights have `model` bytes, `memory` bytes are free, and the disk has `disk`
    bytes altogether.
    """

    def share(total: int) -> float:
        kept = max(KEPT_MODELS * model, KEPT_SHARE * total)
        return max(0.0, total - kept) / workers / GIB

    return CacheSizes(share(memory), share(disk))


def auto_environment(sizes: CacheSizes) -> dict[str, str]:
    """The variables of LMCache that say so; it reads whole GiB."""
    return {
        "LMCACHE_MAX_LOCAL_CPU_SIZE": str(int(sizes.memory)),
        "LMCACHE_MAX_LOCAL_DISK_SIZE": str(int(sizes.disk)),
        "LMCACHE_LOCAL_DISK": f"file://{FOLDER}/",
        "LMCACHE_ENABLE_LAZY_MEMORY_ALLOCATOR": "true",
        "LMCACHE_EXTRA_CONFIG": '{"use_odirect": true}',
    }


def is_missing(settings: Settings) -> str | None:
    """The option that asks for LMCache, where its package is not installed."""
    argument = naming_lmcache(settings.engine_arguments)
    if argument is None or importlib.util.find_spec("lmcache") is not None:
        return None
    return "lmcache_auto_config" if settings.lmcache_auto_config else argument


def configure(settings: Settings, workers: int) -> None:
    """Sets the environment for LMCache where the options ask for it; `workers`: the tensor parallel degree.

    Raises OptionError where its package, or the model's size, is not to be had.
    """
    if option := is_missing(settings):
        expected = "expected the package lmcache beside vLLM, or option.kv_offloading_size, which needs none"
        raise OptionError.of(option, f"LMCache is not installed: {expected}")
    if not settings.lmcache_auto_config:
        return
    import psutil

    replaced = sorted(name for name in os.environ if name.startswith("LMCACHE_"))
    if replaced:
        log.warning("option.lmcache_auto_config goes before what is set of: %s", ", ".join(replaced))
    model = _model_size(settings)
    sizes = cache_sizes(model, int(psutil.virtual_memory().available), shutil.disk_usage(DISK).total, workers)
    os.environ.update(auto_environment(sizes))
    log.info(
        "LMCache: %d GiB of memory and %d GiB of %s for each of %d workers; the weights have %.1f GiB",
        sizes.memory, sizes.disk, FOLDER, workers, model / GIB,
    )  # fmt: skip


def _model_size(settings: Settings) -> int:
    path = Path(settings.model_id)
    size = folder_size(path) if path.is_dir() else _size_on_hub(settings)
    if not size:
        raise OptionError.of(AUTO, f"{settings.model_id} has no *.safetensors or *.bin, whose size it goes by")
    return size


AUTO = "lmcache_auto_config"


def folder_size(folder: Path) -> int:
    """The bytes of the weights in a folder and below it: of *.safetensors, or of *.bin where there are none."""
    return _weights({str(file): file.stat().st_size for file in folder.rglob("*") if file.is_file()})


def _size_on_hub(settings: Settings) -> int:
    from huggingface_hub import HfApi

    try:
        found = HfApi().model_info(settings.model_id, revision=settings.revision, files_metadata=True)
    except Exception as error:
        why = f"the hub does not tell the size of {settings.model_id} ({one_line(str(error))})"
        raise OptionError.of(AUTO, f"{why}: use option.lmcache_config_file") from error
    return _weights({file.rfilename: file.size or 0 for file in found.siblings or ()})


def _weights(sizes: dict[str, int]) -> int:
    by_kind = [sum(size for name, size in sizes.items() if name.endswith(kind)) for kind in (".safetensors", ".bin")]
    return by_kind[0] or by_kind[1]
