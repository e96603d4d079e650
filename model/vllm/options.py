"""`Settings.engine_arguments`, texts by vLLM's names, as typed keyword arguments for `vllm.EngineArgs`.

    name, text --vLLM's own argument parser: type, choices--> value --our defaults--> EngineArgs(**arguments)

Runs where vLLM is installed: in the engine's process and in `lmi check`. vLLM's parser is asked for the types so that
an option means what the same argument means to `vllm serve`, in every version.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import logging
import os
import typing
from collections.abc import Mapping
from typing import Any

from ..adapters.folder import chosen_memory, chosen_rank, found, read_all
from ..errors import Fault, OptionError, one_line, refuse, shown
from ..options import Settings
from ..options.advice.find import closest, unknown
from ..options.combined import IN_4_BITS
from ..options.table import name_given
from ..vllm_messages import NOISE
from .library.internals import argument_actions, available_memory
from .library.parts import SERVER, part
from .library.version import vllm_version
from .lora_patches import EXTENSION
from .pooling.rerankers import overrides

__all__ = ["engine_arguments", "local_processes"]

log = logging.getLogger(__name__)

CPU_CACHE = 2 << 30
"""The largest KV cache of a process on a CPU, in bytes, unless the user asks for one: vLLM writes to all of it at
start."""

_NONE = {"", "none", "null"}


def engine_arguments(settings: Settings) -> dict[str, Any]:
    """Keyword arguments for `vllm.EngineArgs`.

    Raises OptionError for names that this vLLM does not know, with what to write instead, and for values that its
    parser refuses; one error for all. `max` devices become a number here, where they can be counted.
    """
    from vllm import EngineArgs

    actions = argument_actions()
    # A field without an action is for vLLM's own use, unless it is a plain switch.
    fields = {
        field.name: field
        for field in dataclasses.fields(EngineArgs)
        if not field.name.startswith("_") and (field.name in actions or field.type is bool)
    }
    arguments: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, text in _with_grammars(settings.engine_arguments).items():
        option = name_given(settings, name)
        if name in fields:
            try:
                arguments[name] = _value(fields[name], actions.get(name), text)
            except ValueError as error:
                faults.append(Fault(option, expected=str(error), given=shown(text)))
        elif name in settings.unprefixed:
            log.warning(
                "unknown key without option. ignored (serving.properties, or ARGS_* in the environment): %s", name
            )
        else:
            faults.append(unknown(option, text, f"vLLM {vllm_version()}", fields))
    faults += _of_method(arguments.get("quantization"), name_given(settings, "quantization"))
    pooler = arguments.get("pooler_config")
    if pooler and (pooler.enable_chunked_processing or pooler.max_embed_len):
        why, expected = (
            "a text must fit into the model's context",
            "neither enable_chunked_processing nor max_embed_len",
        )
        faults.append(Fault("pooler_config", why, expected))
    refuse(faults)
    return _with_defaults(arguments, settings)


def _with_grammars(given: dict[str, str]) -> dict[str, str]:
    """`given` with guides by xgrammar where it asks for compact JSON, which vLLM does not take of `auto`."""
    try:
        config: Any = json.loads(given.get("structured_outputs_config", "{}"))
    except ValueError:
        config = None
    if not isinstance(config, dict) or not config.get("disable_any_whitespace"):
        return given  # what is wrong with it vLLM's parser says
    return {**given, "structured_outputs_config": json.dumps({"backend": "xgrammar", **config})}


def _of_method(name: str | None, option: str) -> list[Fault]:
    """What is wrong with the quantization of that name, which vLLM judges long after it is given."""
    if name is None:
        return []
    methods: list[str] = part("vllm.model_executor.layers.quantization:QUANTIZATION_METHODS")
    method = name.lower()
    if method not in methods:
        # Plugins of vLLM's may bring methods; it loads them by itself later.
        part("vllm.plugins:load_general_plugins")()
    if method in methods:
        missing = method == IN_4_BITS and importlib.util.find_spec(IN_4_BITS) is None
        return [Fault(option, f"requires the package {IN_4_BITS}, which is not installed")] if missing else []
    if method == IN_4_BITS:
        why = f"vLLM {vllm_version()} does not quantize to 4 bits while it loads: take a checkpoint that is quantized"
        return [Fault(option, f"{why} already (AWQ, GPTQ), or write option.quantize=fp8")]
    expected = f"a method of vLLM's, one of {', '.join(sorted(methods))}"
    return [Fault(option, expected=expected, given=shown(name), similar=closest(method, methods))]


def _value(field: dataclasses.Field[Any], action: argparse.Action | None, text: str) -> Any:
    """`text` as vLLM's command line would take it; raises ValueError with what was expected."""
    if action is None or action.nargs == 0:
        if text.lower() in _NONE and field.default is None:
            return None
        if text.lower() not in {"true", "false"}:
            raise ValueError("true or false")
        return text.lower() == "true"
    if text.lower() in _NONE and field.default is None and not _chosen(action, text):
        return None
    if action.nargs == "?" and text.lower() == "true":
        return action.const
    if action.nargs in {"+", "*"}:
        return [_single(field, action, item) for item in _items(text)]
    return _single(field, action, text)


def _items(text: str) -> list[str]:
    """A list is written as in JSON, or with blanks between its items as on a command line."""
    if not text.startswith("["):
        return text.split()
    try:
        return [item if isinstance(item, str) else json.dumps(item) for item in json.loads(text)]
    except ValueError as error:
        raise ValueError(f"a list in JSON ({error})") from None


def _single(field: dataclasses.Field[Any], action: argparse.Action, text: str) -> Any:
    try:
        value = action.type(text) if callable(action.type) else text
    except (argparse.ArgumentTypeError, ValueError, TypeError) as error:
        raise ValueError(_expected(field, error)) from None
    if action.choices is not None and value not in action.choices:
        raise ValueError("one of " + ", ".join(str(choice) for choice in action.choices if choice != "None"))
    return value


def _chosen(action: argparse.Action, text: str) -> bool:
    """Whether the word none is one of the argument's choices itself."""
    return action.choices is not None and text in action.choices


def _expected(field: dataclasses.Field[Any], error: Exception) -> str:
    kinds = {kind for kind in typing.get_args(field.type) or (field.type,) if kind is not type(None)}
    if kinds == {int}:
        return "an integer"
    if kinds == {float}:
        return "a number"
    said = one_line(str(error))
    for noise in NOISE:
        said = noise.sub("", said)
    return f"what vLLM takes ({said})"


def _with_defaults(arguments: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """What we set where the user did not."""
    arguments.setdefault("disable_log_stats", True)
    # The label of its metrics.
    arguments.setdefault("served_model_name", settings.model_name)
    # Without it a model that cannot generate would start, and every request fail.
    arguments.setdefault("runner", "pooling" if settings.pools else "generate")
    if settings.embeds:
        arguments.setdefault("convert", "embed")
    elif settings.scores:
        arguments.setdefault("convert", "classify")
        arguments["hf_overrides"] = overrides(settings, arguments.get("hf_overrides") or {})
    arguments.setdefault("tensor_parallel_size", _devices(settings))
    if settings.adapters.enable_lora:
        arguments.update(_of_adapters(arguments, settings))
        if _runs_on_cpu() and arguments.setdefault("worker_extension_cls", EXTENSION) != EXTENSION:
            expected = f"none beside option.enable_lora, which needs {EXTENSION} there on a CPU"
            raise OptionError.of("worker_extension_cls", expected=expected)
    cache = _cpu_cache(settings, local_processes(arguments, settings))
    if cache is not None:
        arguments.setdefault("kv_cache_memory_bytes", cache)
    return arguments


def _of_adapters(arguments: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """The arguments that follow from the options of adapters, and from the adapters that lie in the model directory."""
    options = settings.adapters
    folders = found(settings)
    files, _ = read_all(folders, base=None, max_rank=None)
    speculative = arguments.get("speculative_config") or {}
    if drafted := speculative.get("num_speculative_tokens"):
        # vLLM refuses less (EngineArgs.create_engine_config).
        least = settings.max_rolling_batch_size * (drafted + 1)
        given = arguments.get("max_num_batched_tokens")
        if given is not None and given < least:
            why = f"with adapters and {drafted} drafted tokens (max_rolling_batch_size times {drafted + 1})"
            option = name_given(settings, "max_num_batched_tokens")
            raise OptionError.of(option, expected=f"at least {least} {why}", given=given)
        if given is None and least > _usual_step(arguments):
            arguments["max_num_batched_tokens"] = least
    return {
        "enable_lora": True,
        "max_loras": options.max_loras,
        "max_lora_rank": chosen_rank(settings, files),
        "max_cpu_loras": chosen_memory(settings, len(folders)),
    }


def _usual_step(arguments: Mapping[str, Any]) -> int:
    """How many tokens vLLM computes in a step on this device where nobody says, as a server."""
    processes = (arguments.get("tensor_parallel_size") or 1) * (arguments.get("pipeline_parallel_size") or 1)
    tokens, _ = part("vllm:EngineArgs.get_batch_defaults")(processes)
    return int(tokens[part(SERVER)])


def _devices(settings: Settings) -> int:
    """vLLM's tensor size where the degree is `max`: all devices of all hosts, shared out to the stages of the pipeline
    and to the copies of the model. A CPU is one. Raises OptionError where copies would leave devices over.
    """
    import torch

    parallel, count = settings.parallel, int(torch.cuda.device_count())
    devices = max(1, count) * parallel.nnodes
    parts = settings.pipeline_parallel_degree * parallel.data_parallel_size
    if parallel.data_parallel_size > 1 and devices % parts and count:
        expected = f"a divisor of the worker's {devices // settings.pipeline_parallel_degree} devices"
        raise OptionError.of("data_parallel_size", expected=expected, given=parallel.data_parallel_size)
    return max(1, devices // parts)


def local_processes(arguments: Mapping[str, Any], settings: Settings) -> int:
    """How many processes of vLLM's have a part of the model on this host, by its arguments."""
    sizes = ("tensor_parallel_size", "pipeline_parallel_size", "prefill_context_parallel_size")
    processes = settings.parallel.data_parallel_size
    for size in sizes:
        processes *= arguments.get(size) or 1
    return max(1, processes // settings.parallel.nnodes)


def _cpu_cache(settings: Settings, processes: int) -> int | None:
    """The bytes of KV cache on a CPU, in each of `processes`, where the user says nothing of it; None: leave it to
    vLLM.

    vLLM's default there is `gpu_memory_utilization` of all memory, whoever else uses it, and it does not start if that
    much is not free.
    """
    asked = {"kv_cache_memory_bytes", "gpu_memory_utilization", "num_gpu_blocks_override"}
    if not _runs_on_cpu() or asked & settings.engine_arguments.keys():
        return None
    if os.environ.get("VLLM_CPU_KVCACHE_SPACE"):
        return None
    return min(CPU_CACHE, available_memory() // 4 // processes)


def _runs_on_cpu() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())
