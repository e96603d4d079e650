"""Which engine and which model the options choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["ON_TRANSFORMERS", "engine_of", "model_of"]

ON_TRANSFORMERS = {"scheduler", "hf-accelerate"}
"""Values of `rolling_batch` that choose transformers."""

_FOR_TRANSFORMERS = ("device_map", "load_in_8bit", "load_in_4bit")


def engine_of(values: Mapping[str, object], task: str, fault: Callable[[str, str], None]) -> str:
    """A name of the ENGINES table: `backend` if it is given, else what `rolling_batch` chooses. Embeddings have one.

    Calls `fault` with the name of an option that contradicts it and with what is wrong.
    """
    backend = values.get("backend")
    batching = str(values.get("rolling_batch", "auto"))
    engine = str(backend or ("transformers" if batching in ON_TRANSFORMERS else "vllm"))
    if backend and batching in ({"vllm", "lmi-dist"} if engine == "transformers" else ON_TRANSFORMERS):
        fault("backend", f"{engine!r} contradicts option.rolling_batch={batching}")
    if engine == "vllm":
        for name in _FOR_TRANSFORMERS:
            if values.get(name):
                fault(name, "expected option.backend=transformers or option.rolling_batch=scheduler with it")
    if task == "embed":
        if engine == "transformers":
            name = "backend" if backend else "rolling_batch"
            fault(name, f"expected vLLM with option.task=text-embedding, got {backend or batching!r}")
        return "vllm-embedding"
    return engine


def model_of(given: str | None, directory: str) -> str:
    """The hub id, or the absolute path; a relative path counts from the model directory, if it is there."""
    if not given:
        return directory
    inside = Path(directory, given)
    return str(inside.absolute()) if inside.exists() else given
