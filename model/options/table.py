"""Every option: those that structs declare, and here those whose text goes on to somebody else, or is refused.

Any name that is not in the table is an argument of the engine.
"""

from __future__ import annotations

from .adapter_options import AdapterOptions
from .deciding_options import IndirectOptions
from .media_rules import MediaRules
from .option import Kind, Option, declared
from .parallel.options import ParallelOptions
from .session_options import ResponseStoreOptions, SessionOptions
from .settings import Limits, Settings

__all__ = ["OPTIONS", "WRITTEN_NAMES", "name_given", "name_of_argument", "option_named", "options_table"]


def _engine(
    name: str, kind: Kind, help: str, default: str = "vLLM's", alias: str = "", ge: float | None = None
) -> Option:
    """An argument that is documented here because many set it; the engine judges it. `alias` is vLLM's name."""
    aliases = (alias,) if alias else ()
    return Option(help, name, kind, default, aliases, ge=ge, owner="engine", argument=alias or name)


def _executor(text: str) -> str:
    if text.lower() in _EXECUTORS or "." in text:
        return text
    raise ValueError(f"{', '.join(sorted(_EXECUTORS - {'none'}))}, or module.Class")


_EXECUTORS = frozenset({"external_launcher", "mp", "none", "ray", "uni"})
"""vLLM's own (config/parallel.py, DistributedExecutorBackend), and none for its default."""


def _unsupported(what: str, **defaults: str) -> tuple[Option, ...]:
    """Options of a feature that is not there, with the values that do not ask for it."""
    return tuple(Option(what, name, default=default, unsupported=what) for name, default in defaults.items())


def _no_effect(name: str, why: str, *, noted: bool = False) -> Option:
    return Option(why, name, owner="nobody", noted=noted)


def _djl(name: str, help: str, *aliases: str) -> Option:
    """DJL Serving's own: the init call carries them, those that are written without `option.` too."""
    return Option(help, name, aliases=aliases, owner="djl")


# fmt: off
OPTIONS: tuple[Option, ...] = (
    *declared(IndirectOptions).values(),
    *declared(Settings).values(),
    *declared(Limits).values(),
    *declared(MediaRules).values(),
    *declared(AdapterOptions).values(),
    *declared(SessionOptions).values(),
    *declared(ResponseStoreOptions).values(),
    *declared(ParallelOptions).values(),
    # vLLM's arguments that users set most.
    Option("Quantization method; a model that is quantized already needs none.", "quantize", default="none",
           aliases=("quantization",), owner="engine", argument="quantization"),
    _engine("max_rolling_batch_prefill_tokens", "engine",
            "How many tokens, prompts included, one step computes at most.", alias="max_num_batched_tokens"),
    _engine("cpu_offload_gb_per_gpu", "float", "GiB of weights that each device keeps in the machine's memory.", "0",
            "cpu_offload_gb", ge=0),
    _engine("max_model_len", "engine", "Longest prompt plus response, in tokens; `32k` is 32,000.", "the model's"),
    _engine("gpu_memory_utilization", "engine", "Share of each device's memory to use, up to 1."),
    _engine("kv_cache_memory_bytes", "engine", "Bytes of KV cache on each device; at most 2 GiB on CPU unless set."),
    _engine("load_format", "str", "How weights are read."),
    _engine("tokenizer", "str", "Tokenizer: a hub id or a path.", "the model's"),
    _engine("tokenizer_mode", "str", "Which tokenizer class to use."),
    _engine("enforce_eager", "bool", "Skip the compilation of the model.", "false"),
    _engine("enable_prefix_caching", "bool", "Reuse the KV cache of equal beginnings."),
    _engine("enable_chunked_prefill", "bool", "Compute long prompts in pieces."),
    _engine("speculative_config", "json", "Speculative decoding.", "none"),
    _engine("kv_transfer_config", "json", "Transfer of the KV cache.", "none"),
    _engine("kv_offloading_size", "float", "GiB of the machine's memory that keep the KV cache of prompts which the "
            "devices have no room for any more, for all devices together.", "none", ge=0),
    _engine("kv_offloading_backend", "str", "Who keeps it: `native` (vLLM itself), or `lmcache`."),
    _engine("otlp_traces_endpoint", "str", "Where spans of requests are sent (OpenTelemetry).", "none"),
    _engine("limit_mm_per_prompt", "json", "How many images, videos and the like one prompt may have."),
    _engine("enable_expert_parallel", "bool", "Spread a model's experts over the devices, each whole on one.", "false"),
    Option("What starts the processes of several devices: `mp` or `ray`.", "distributed_executor_backend",
           default="vLLM's", owner="engine", argument="distributed_executor_backend", convert=_executor),
    _engine("seed", "int", "The engine's seed."),
    _engine("pooler_config", "json", "How vLLM makes one vector of the tokens' (`pooling_type`).", "the model's"),
    _engine("lora_dtype", "str", "Type of the adapters' weights.", "the model's"),
    _engine("lora_target_modules", "list", "The modules that adapters may change.", "all that vLLM supports"),
    _engine("fully_sharded_loras", "bool", "Spread all of an adapter's work over the devices.", "false"),
    # To support one, declare it with its type.
    *_unsupported("Bedrock compatibility", bedrock_compat="false"),
    *_unsupported("models without a tokenizer", skip_tokenizer_init="false"),
    *_unsupported("8-bit weights of bitsandbytes", load_in_8bit="false"),
    # Java's folder of adapters has a fixed name, and so has ours.
    _no_effect("adapters", "The folder of adapters is always `adapters`."),
    _no_effect("lora_extra_vocab_size", "Adapters have no vocabulary of their own any more.", noted=True),
    _no_effect("long_lora_scaling_factors", "Adapters have no context of their own any more.", noted=True),
    _no_effect("record_acceptance_rate", "vLLM counts accepted drafts by itself.", noted=True),
    _no_effect("waiting_steps", "For a scheduler that no longer exists."),
    _no_effect("device", "vLLM finds the device."),
    _no_effect("device_map", "All devices are used, unless `tensor_parallel_degree` says less."),
    # DJL Serving itself sets it for rolling_batch=trtllm.
    _no_effect("max_num_tokens", "TensorRT-LLM's."),
    _no_effect("disable_flash_attn", "vLLM chooses the kernel."),
    _no_effect("low_cpu_mem_usage", "vLLM loads weights one by one."),
    _djl("engine", "DJL's engine: Python."),
    _djl("entryPoint", "Module or file of the handler: lmi.handler."),
    _djl("handler", "Function of the entry point: handle."),
    _djl("minWorkers", "Minimum number of workers.", "gpu.minWorkers", "cpu.minWorkers", "nc.minWorkers"),
    _djl("maxWorkers", "Maximum number of workers.", "gpu.maxWorkers", "cpu.maxWorkers", "nc.maxWorkers"),
    _djl("job_queue_size", "Length of DJL Serving's queue."),
    _djl("batch_size", "Size of dynamic batches.", "max_dynamic_batch_size"),
    _djl("batchifier", "How Java joins a batch; it sets `stack` where batch_size is above 1."),
    _djl("max_batch_delay", "Milliseconds that a dynamic batch waits for requests."),
    _djl("max_idle_time", "Seconds after which an idle worker ends."),
    _djl("predict_timeout", "Seconds that one call of the handler may take."),
    _djl("model_loading_timeout", "Seconds that start-up may take."),
    _djl("load_on_devices", "Devices that get a worker."),
    _djl("pythonExecutable", "The interpreter."),
    _djl("env", "Environment of the worker."),
    _djl("enable_venv", "A virtual environment for this model."),
    _djl("parallel_loading", "Start workers in parallel."),
    _djl("retry_threshold", "How many failed starts are allowed."),
    _djl("required_memory_mb", "Memory that the model needs.", "gpu.required_memory_mb"),
    _djl("reserved_memory_mb", "Memory that stays free.", "gpu.reserved_memory_mb"),
    _djl("log_request_metric", "Log measurements.", "metrics_aggregation", "metric_dimension"),
    _djl("max_output_size", "Largest response, in bytes."),
    _djl("use_passive_workers", "For MPI mode."),
    _djl("modelName", "Prefix of the model's file names.", "modeName"),
    _djl("translatorFactory", "For other engines.", "translator", "application", "optimization", "default_accept"),
    _djl("mapLocation", "For other engines.", "extraFiles"),
    # What the host tells the worker, and no user writes.
    _djl("model_dir", "", "device_id", "cluster_size", "is_peft_model", "failed"),
)
# fmt: on

_BY_NAME = {name: option for option in OPTIONS for name in option.names}
_OF_ARGUMENT = {option.argument: option.name for option in OPTIONS if option.argument}
WRITTEN_NAMES = tuple(name for name, option in _BY_NAME.items() if option.help and option.owner != "nobody")
"""Names and aliases that somebody may have meant: they have an effect, and are not the host's word alone."""


def option_named(name: str) -> Option | None:
    """The option of that name or alias; None: not in the table."""
    return _BY_NAME.get(name)


def name_of_argument(argument: str) -> str:
    """The name of the option that sets an argument of the engine: the argument's own where none does."""
    return _OF_ARGUMENT.get(argument, argument)


def name_given(settings: Settings, argument: str) -> str:
    """The name by which the user gave an argument of the engine: that of its option where nobody did."""
    return settings.written.get(argument, name_of_argument(argument))


def _row(option: Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.names)
    values = ", ".join(f"`{choice}`" for choice in option.choices if option.kind != "reference")
    return f"| {names} | {option.default or 'none'} | {values or option.expected} | {option.help} |"


def options_table() -> str:
    """The table for the documentation, in Markdown."""
    documented = [option for option in OPTIONS if option.owner in {"handler", "engine"} and not option.unsupported]
    refused: dict[str, list[str]] = {}
    for option in OPTIONS:
        if option.unsupported:
            refused.setdefault(option.unsupported, []).append(f"`{option.name}`")
        for value, what in option.unsupported_values.items():
            refused.setdefault(what, []).append(f"`{option.name}={value}`")
    named = {
        owner: ", ".join(
            f"`{name}`" for option in OPTIONS if option.owner == owner and option.help for name in option.names
        )
        for owner in ("djl", "nobody")
    }
    return "\n".join(
        [
            "| option | default | values | meaning |",
            "| --- | --- | --- | --- |",
            *(_row(option) for option in sorted(documented, key=lambda option: option.name)),
            "",
            "Every other argument of vLLM's `EngineArgs` passes through under its own name: `option.max_logprobs=5`.",
            "",
            f"DJL Serving's own keys keep their meaning: {named['djl']}.",
            "",
            f"Accepted without effect: {named['nobody']}.",
            "",
            "What this version does not do, and the options that are refused at start because they ask for it:",
            "",
            *(f"- {what}: {', '.join(names)}" for what, names in refused.items()),
        ]
    )
