"""Which backend, task, mode, modelling and draft model the options choose together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from .adapter_options import AdapterOptions
from .deciding_options import IndirectOptions
from .finding import Finding
from .lmcache import naming_lmcache
from .option_reader import OptionReader
from .settings import Settings

__all__ = [
    "IN_4_BITS",
    "TASK_NAMES",
    "backend_of",
    "batching_of",
    "check_adapters",
    "check_mpi",
    "check_parsers",
    "is_hub_id",
    "is_users",
    "modelling_of",
    "path_or_id",
    "plugins_of",
    "quantization_of",
    "speculative_config",
    "task_of",
]

ON_TRANSFORMERS = {"scheduler", "hf-accelerate"}
"""Values of `rolling_batch` that choose transformers' modelling of the model, in vLLM."""

ON_VLLM = {
    "lmi-dist": "which has taken lmi-dist's place",
    "trtllm": "with TensorRT-LLM's defaults of parameters",
}
"""Other back ends that vLLM stands for, and what a user should know of it."""

OURS = ("vllm", "transformers")
"""Values of `backend` that are no engine of the user's."""

POOLED = {
    **dict.fromkeys(("text-embedding", "feature-extraction", "embed"), "embed"),
    **dict.fromkeys(("text-ranking", "score"), "rank"),
    **dict.fromkeys(("text-classification", "classify"), "classify"),
}
"""Tasks of models that generate nothing, by the values of `option.task`; LMI's embedding user guide has the first,
djl_python's handler the second too, Hugging Face's hub those with a hyphen, vLLM the others."""
TASK_NAMES = {"embed": "text-embedding", "rank": "text-ranking", "classify": "text-classification"}
"""What messages call such a task."""

IN_4_BITS = "bitsandbytes"
"""vLLM's method that quantizes weights to 4 bits while it loads them."""

PROMPT_LOOKUP = {"ngram", "[ngram]"}
"""No draft model: what followed the same tokens earlier in the prompt or the answer is the draft."""


ELSEWHERE = "SERVING_BATCH_SIZE and the management API set it too"


def batching_of(given: IndirectOptions, settings: Settings, reader: OptionReader) -> str:
    """`rolling_batch` as it is in force: a name of its values that batches, or disable."""
    # DJL Serving itself turns rolling batch off where dynamic batches are asked for. Of a size that is not among the
    # options (SERVING_BATCH_SIZE, POST /models?batch_size=) it only lets us know `batchifier` (ModelInfo.load).
    sizes = [reader.host.get(name, "") for name in ("batch_size", "max_dynamic_batch_size")]
    dynamic = any(size.isdecimal() and int(size) > 1 for size in sizes) or reader.host.get("batchifier") == "stack"
    if settings.async_mode:
        if given.rolling_batch not in {"auto", "disable"}:
            reader.fault("async_mode", expected="option.rolling_batch=disable with it", given=given.rolling_batch)
        if dynamic:
            # Where rolling_batch is auto, DJL Serving turns async mode on, and its batches of several then all fail.
            reader.fault(
                "async_mode",
                expected=f"batch_size=1 with it ({ELSEWHERE}); for dynamic batches set option.rolling_batch=disable, "
                "no async_mode",
            )
        return "disable"
    if given.rolling_batch == "disable" or (dynamic and given.rolling_batch == "auto"):
        if dynamic and given.enable_streaming != "false":
            reader.note("enable_streaming", " with batch_size > 1: only a batch of one is streamed")
        return "disable"
    if dynamic:
        expected = f"disable with batch_size above 1 ({ELSEWHERE})"
        reader.fault("rolling_batch", expected=expected, given=given.rolling_batch)
    if given.rolling_batch in ON_VLLM:
        reader.note("rolling_batch", f"={given.rolling_batch} runs on vLLM, {ON_VLLM[given.rolling_batch]}")
    return given.rolling_batch if given.rolling_batch in {*ON_VLLM, *ON_TRANSFORMERS} else "vllm"


def task_of(given: IndirectOptions, settings: Settings, reader: OptionReader) -> str:
    """As Settings.task, by `option.task` or, in vLLM's own terms, by `option.runner` and `option.convert`."""
    asked, converted = POOLED.get(given.task), POOLED.get(given.convert)
    named = f"{reader.called('convert')}={given.convert}" if converted else None
    named = f"{reader.called('task')}={given.task}" if asked else named
    if named and given.runner == "generate":
        reader.fault("runner", expected=f"pooling with {named}", given="generate")
    pooled = named or (f"{reader.called('runner')}=pooling" if given.runner == "pooling" else None)
    task = asked or converted or ("embed" if pooled else "auto")
    if pooled and not asked and given.task != "auto":
        reader.fault("task", expected=f"{TASK_NAMES[task]} with {pooled}", given=given.task)
    if asked and converted and (asked == "embed") != (converted == "embed"):
        reader.fault("convert", expected=f"{'embed' if asked == 'embed' else 'classify'} with {named}")
    if task != "rank" and settings.reranker is not None:
        reader.note("reranker", " has no effect without option.task=text-ranking", "warning")
    if task != "embed" and settings.normalize is False:
        reader.note("normalize", "=false has no effect without option.task=text-embedding", "warning")
    if pooled:
        for name in ("speculative_config", "speculative_draft_model"):
            if name in reader.values:
                reader.fault(name, "nothing is generated", expected=f"no such option with task={TASK_NAMES[task]}")
        return task
    return "auto" if given.task == "auto" else "generate"


def is_users(backend: str) -> bool:
    """Whether a backend is user code, `module:name`."""
    return ":" in backend


def backend_of(given: IndirectOptions, task: str, reader: OptionReader) -> str:
    """A name of the BACKENDS table, or the user's own as `module:name`. Embeddings and scores have one each."""
    backend = given.backend or "vllm"
    if is_users(backend):
        return backend
    if backend not in OURS:
        reader.fault("backend", expected=f"one of {', '.join(OURS)}, or module:name", given=backend)
    return {"embed": "vllm-embedding", "rank": "vllm-scoring", "classify": "vllm-scoring"}.get(task, "vllm")


def modelling_of(given: IndirectOptions, task: str, reader: OptionReader) -> str | None:
    """vLLM's argument `model_impl` where `backend` or `rolling_batch` asks for transformers' modelling; else None.

    vLLM 0.26.0 starts transformers' models that score, and fails at their first request.
    """
    asked = "backend" if given.backend == "transformers" else "rolling_batch"
    value = given.backend if asked == "backend" else given.rolling_batch
    if given.backend and given.rolling_batch in ({"vllm", *ON_VLLM} if asked == "backend" else ON_TRANSFORMERS):
        reader.fault("backend", f"{given.backend!r} contradicts {reader.called('rolling_batch')}={given.rolling_batch}")
    if value not in {"transformers", *ON_TRANSFORMERS}:
        return None
    if task in {"rank", "classify"}:
        reader.fault(asked, expected=f"vLLM's own modelling with option.task={TASK_NAMES[task]}", given=value)
    named = reader.arguments.get("model_impl", "transformers")
    if named != "transformers":
        reader.fault("model_impl", f"{named!r} contradicts {reader.called(asked)}={value}")
    reader.note(asked, f"={value} runs on vLLM, with transformers' modelling (model_impl=transformers)")
    return "transformers"


def quantization_of(given: IndirectOptions, reader: OptionReader) -> str | None:
    """vLLM's argument `quantization` where `load_in_4bit` asks for it; else None."""
    if not given.load_in_4bit:
        return None
    before = reader.arguments.get("quantization", IN_4_BITS)
    if before.lower() != IN_4_BITS:
        reader.fault("load_in_4bit", f"contradicts {reader.called('quantize')}={before}")
    return IN_4_BITS


def check_mpi(given: IndirectOptions, settings: Settings, reader: OptionReader) -> None:
    """MPI mode starts a worker for each device, where one is to use them all: with one device it is as good as off.

    DJL Serving turns it on for rolling_batch=trtllm, whatever the user says (LmiConfigRecommender).
    """
    if not given.mpi_mode or (settings.tensor_parallel_degree, settings.pipeline_parallel_degree) == (1, 1):
        return
    message = "MPI mode is not supported (one worker uses all devices): set engine=Python"
    if given.rolling_batch == "trtllm":
        message = (
            "DJL Serving turns it on for option.rolling_batch=trtllm, a worker for each device; for one "
            "device set option.tensor_parallel_degree=1, for more option.rolling_batch=vllm and "
            "option.parameter_schema=trtllm"
        )
    reader.fault("mpi_mode", message)


def check_parsers(given: IndirectOptions, settings: Settings, reader: OptionReader) -> None:
    """what the options of parsers lack."""
    if given.enable_auto_tool_choice and not settings.tool_call_parser:
        reader.fault("enable_auto_tool_choice", expected="option.tool_call_parser with it, but it is not set")
    if given.enable_reasoning and not settings.reasoning_parser:
        reader.fault("enable_reasoning", expected="option.reasoning_parser with it, but it is not set")


def check_adapters(settings: Settings, reader: OptionReader) -> AdapterOptions:
    """The options of adapters, with absolute paths, once they fit each other and the rest."""
    adapters = settings.adapters
    if not adapters.enable_lora:
        if adapters != AdapterOptions():
            why = "the options of adapters have no effect without option.enable_lora=true"
            reader.notes.append(Finding("warning", why, "enable_lora", "option.enable_lora=true"))
        return adapters
    most = adapters.max_cpu_loras
    if most is not None and reader.name_given("max_loras") is None:
        adapters = msgspec.structs.replace(adapters, max_loras=min(most, adapters.max_loras))
    if most is not None and most < adapters.max_loras:
        expected = f"at least {reader.called('max_loras')}={adapters.max_loras}"
        reader.fault("max_cpu_loras", expected=expected, given=most)
    if argument := naming_lmcache(reader.arguments):
        name = "lmcache_auto_config" if settings.lmcache_auto_config else argument
        expected = f"no LMCache with it ({reader.called(name)})"
        reader.fault("enable_lora", "it takes one adapter's KV cache for another's", expected=expected)
    folder, registry = adapters.lora_cache_dir, adapters.adapters_registry
    if folder is not None:
        folder = str(Path(settings.model_dir, folder))
        if not Path(folder).is_dir():
            reader.fault("lora_cache_dir", "it is none", expected="a folder", given=folder)
    if registry is None:
        # A model of the hub has no directory.
        there = Path(settings.model_dir).is_dir()
        registry = str(Path(settings.model_dir, ".lmi", "adapters.json")) if there else ""
    elif registry.lower() != "none":
        registry = str(Path(settings.model_dir, registry))
    else:
        registry = ""
    by_modality = {name: str(Path(settings.model_dir, path)) for name, path in adapters.default_mm_loras.items()}
    return msgspec.structs.replace(
        adapters, lora_cache_dir=folder, adapters_registry=registry, default_mm_loras=by_modality
    )


def plugins_of(settings: Settings, reader: OptionReader) -> dict[str, str]:
    """The absolute paths of the files that register parsers, by the options that name them."""
    found: dict[str, str] = {}
    for name in ("tool_parser_plugin", "reasoning_parser_plugin"):
        given: str | None = getattr(settings, name)
        if given is not None:
            path = Path(settings.model_dir, given)
            found[name] = str(path)
            if not path.is_file():
                expected = "a Python file, absolute or in the model directory"
                reader.fault(name, f"there is no file {path}", expected=expected, given=given)
    return found


def path_or_id(model: str, directory: str) -> str:
    """The absolute path, if that is there; a relative one counts from the model directory. Else the hub id."""
    inside = Path(directory, model)
    return str(inside.absolute()) if inside.exists() else model


def is_hub_id(name: str) -> bool:
    """Whether a name may be one of the hub's, `ORG/NAME` or `NAME`: it has not a path's form, and is none here."""
    return not (Path(name).exists() or Path(name).is_absolute() or name.startswith(".") or name.count("/") > 1)


def speculative_config(given: IndirectOptions, directory: str) -> str | None:
    """vLLM's `speculative_config`, as JSON, of lmi-dist's three options.

    None where no draft model is named, without which the others mean nothing, or nothing is to be drafted.
    """
    model = given.speculative_draft_model
    if model is None or given.speculative_length == 0:
        return None
    config: dict[str, Any] = {"num_speculative_tokens": given.speculative_length}
    if model in PROMPT_LOOKUP:
        return json.dumps({"method": "ngram", **config})
    config |= {"model": path_or_id(model, directory), "method": "draft_model"}
    if given.draft_model_tp_size is not None:
        # By default it is the model's own, which a draft model must have; of other drafts some must have 1.
        config["draft_tensor_parallel_size"] = given.draft_model_tp_size
    return json.dumps(config)
