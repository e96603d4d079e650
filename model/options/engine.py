"""Which engine and which model the options choose, and what the host says of devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from .faults import shown

__all__ = [
    "FOR_TRANSFORMERS",
    "ON_TRANSFORMERS",
    "ON_VLLM",
    "check_mpi",
    "engine_of",
    "host_number",
    "is_users",
    "model_of",
]

ON_TRANSFORMERS = {"scheduler", "hf-accelerate"}
"""Values of `rolling_batch` that choose transformers."""

ON_VLLM = {
    "lmi-dist": "which has taken lmi-dist's place",
    "trtllm": "with TensorRT-LLM's defaults of parameters",
}
"""Other back ends that vLLM stands for, and what a user should know of it."""

FOR_TRANSFORMERS = ("device_map", "load_in_8bit", "load_in_4bit")
"""Settings that vLLM knows nothing of."""


OURS = ("auto", "vllm", "transformers")
"""Values of `backend` that are engines of ours."""


def is_users(engine: str) -> bool:
    """Whether an engine is code of the user's, `module:name`."""
    return ":" in engine


def engine_of(values: Mapping[str, object], task: str, fault: Callable[[str, str], None]) -> str:
    """A name of the ENGINES table, or the user's own as `module:name`: `backend` if it is given, else what
    `rolling_batch` chooses. Embeddings have one.

    Calls `fault` with the name of an option that contradicts it and with what is wrong.
    """
    backend = values.get("backend")
    batching = str(values.get("rolling_batch", "auto"))
    engine = str(backend or ("transformers" if batching in ON_TRANSFORMERS else "vllm"))
    if is_users(engine):
        return engine
    if engine not in OURS:
        fault("backend", f"expected one of {', '.join(OURS)}, or module:name, got {engine!r}")
    if backend and batching in ({"vllm", *ON_VLLM} if engine == "transformers" else ON_TRANSFORMERS):
        fault("backend", f"{engine!r} contradicts option.rolling_batch={batching}")
    if engine == "vllm":
        for name in FOR_TRANSFORMERS:
            if values.get(name):
                fault(name, "expected option.backend=transformers or option.rolling_batch=scheduler with it")
    if task == "embed":
        if engine == "transformers":
            name = "backend" if backend else "rolling_batch"
            fault(name, f"expected vLLM with option.task=text-embedding, got {backend or batching!r}")
        return "vllm-embedding"
    return engine


def check_mpi(values: Mapping[str, object], fault: Callable[[str, str], None]) -> None:
    """MPI mode starts a worker for each device, where one is to use them all: with one device it is as good as off.

    DJL Serving turns it on for rolling_batch=trtllm, whatever the user says (LmiConfigRecommender).
    """
    degrees = (values.get("tensor_parallel_degree"), values.get("pipeline_parallel_degree", 1))
    if not values.get("mpi_mode") or degrees == (1, 1):
        return
    message = "MPI mode is not supported, one worker uses all devices: set engine=Python"
    if values.get("rolling_batch") == "trtllm":
        message = (
            "DJL Serving turns it on for option.rolling_batch=trtllm, a worker for each device; for one "
            "device set option.tensor_parallel_degree=1, for more option.rolling_batch=vllm and "
            "option.parameter_schema=trtllm"
        )
    fault("mpi_mode", message)


def model_of(given: str | None, directory: str) -> str:
    """The hub id, or the absolute path; a relative path counts from the model directory, if it is there."""
    if not given:
        return directory
    inside = Path(directory, given)
    return str(inside.absolute()) if inside.exists() else given


def host_number(host: Mapping[str, str], name: str, default: int, fault: Callable[[str, str], None]) -> int:
    """An integer that DJL Serving itself sets."""
    text = host.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        fault(name, f"expected an integer, got {shown(text)}")
        return default
