"""The table of options: a row for each name that is ours or the host's. Any other name is an argument of the engine.

    option.NAME=TEXT --find--> Option --value--> a typed value, or ValueError that says what was expected

A row says where its value goes: to us, to the engine as one of its arguments, to nobody (it has no effect), or it is
the host's own, which DJL Serving reads and passes on. A row that is `planned` names what this version does not do: any
value but the default is refused, because a model that asks for it would be served wrongly. To support it, give the row
its type.
"""

from __future__ import annotations

from .djl import HOST_OPTIONS
from .image_rules import LARGEST_IMAGES, MOST_PIXELS
from .limits import LIMIT_OPTIONS
from .row import Kind, Option

__all__ = ["OPTIONS", "find", "options_table"]


def _vllm(name: str, kind: Kind, help: str, default: str = "vLLM's") -> Option:
    """An argument that is documented here because many set it; vLLM judges it."""
    return Option(name, kind, help, default=default, reader="engine", argument=name)


def _planned(what: str, **defaults: str) -> tuple[Option, ...]:
    """Options of a feature that is not there, with the values that do not ask for it."""
    return tuple(Option(name, "str", what, default=default, unsupported=what) for name, default in defaults.items())


_CLASSIFY = "classification"

# fmt: off
OPTIONS: tuple[Option, ...] = (
    # The model.
    Option(
        "model_id", "str", "The model: a hub id or a path. A relative path is looked for in the model directory.",
        default="the model directory", aliases=("model",), argument="model",
    ),
    Option("revision", "str", "Branch, tag or commit of a hub id.", argument="revision"),
    Option(
        "trust_remote_code", "bool", "Run Python code that comes with the model.",
        default="false", argument="trust_remote_code",
    ),
    Option(
        "dtype", "choice", "Type of the weights.", default="auto", argument="dtype",
        choices=("auto", "fp32", "float32", "float", "fp16", "float16", "half", "bf16", "bfloat16"),
    ),
    Option(
        "quantize", "str", "Quantization method; a model that is quantized already needs none.",
        aliases=("quantization",), argument="quantization",
    ),
    Option(
        "task", "choice", "What the model does: it generates text (`auto` too), or makes vectors of texts.",
        default="auto",
        choices=("auto", "text-generation", "generate", "text-embedding", "feature-extraction", "embed"),
        unsupported_values={"classify": _CLASSIFY},
    ),
    Option(
        "normalize", "bool", "Whether the vectors of `task=text-embedding` have length 1; a request may say otherwise.",
        default="true",
    ),
    Option("served_model_name", "str", "Name of the model in answers.", default="the model directory"),
    # Batching and devices.
    Option(
        "rolling_batch", "choice",
        "How requests are batched; `auto` is `vllm`. `lmi-dist` and `trtllm` run on vLLM, `scheduler` and "
        "`hf-accelerate` on transformers.",
        default="auto", choices=("auto", "vllm", "lmi-dist", "trtllm", "scheduler", "hf-accelerate", "disable"),
    ),
    Option("async_mode", "bool", "DJL's asynchronous mode; excludes rolling batch.", default="false"),
    Option(
        "mpi_mode", "bool", "A worker of DJL's for each device: only for one. DJL itself sets it for `trtllm`.",
        default="false",
    ),
    Option(
        "max_rolling_batch_size", "int", "How many sequences are generated at once at most; more wait.",
        default="256, on transformers 32", least=1, aliases=("max_num_seqs",), argument="max_num_seqs", set_by_djl=True,
    ),
    Option(
        "max_rolling_batch_prefill_tokens", "engine", "How many tokens, prompts included, one step computes at most.",
        default="vLLM's", aliases=("max_num_batched_tokens",), argument="max_num_batched_tokens",
    ),
    Option(
        "tensor_parallel_degree", "str", "How many devices share each layer: a number, or `max` for all of them.",
        default="max", aliases=("tensor_parallel_size",), argument="tensor_parallel_size", set_by_djl=True,
    ),
    Option(
        "pipeline_parallel_degree", "int", "How many stages the layers are spread over.",
        default="1", least=1, aliases=("pipeline_parallel_size",), argument="pipeline_parallel_size", set_by_djl=True,
    ),
    Option(
        "cpu_offload_gb_per_gpu", "float", "GiB of weights that each device keeps in the machine's memory.",
        default="0", least=0, aliases=("cpu_offload_gb",), argument="cpu_offload_gb",
    ),
    # Requests and answers.
    Option(
        "output_formatter", "reference", "Form of LMI answers: one document, or a stream of lines or of events (SSE). "
        "`module:name` is a dialect or formatter of your own.",
        default="by the request", choices=("json", "jsonlines", "sse"),
    ),
    Option(
        "input_formatter", "reference", "A function of your own that makes the payload of each request.",
        default="model.py's",
    ),
    Option("content_filter", "reference", "A function of your own that judges prompts and generated text."),
    Option(
        "user_code_threads", "int", "How many threads run your own code at most.",
        default="max_rolling_batch_size", least=1,
    ),
    Option("dialect", "str", "Wire dialect of every request.", default="by the request"),
    Option("tgi_compat", "bool", "Answer requests with `inputs` as Hugging Face's TGI does.", default="false"),
    Option(
        "unknown_parameters", "choice", "What to do with generation parameters that nobody knows.",
        default="ignore", choices=("ignore", "error"),
    ),
    Option(
        "parameter_schema", "choice", "Whose defaults LMI's parameters have: TensorRT-LLM's, or those of all others.",
        default="by rolling_batch", choices=("common", "trtllm"),
    ),
    Option(
        "log_requests", "choice", "Log a line for each request, with `true` also what it asks and is answered.",
        default="false", choices=("false", "summary", "true"),
    ),
    Option(
        "metrics_interval", "float", "Seconds between the log's lines with metrics behind DJL Serving; 0: none.",
        default="60", least=0,
    ),
    Option("merge_records", "bool", "Whether one chunk of a stream may carry several records.", default="false"),
    Option(
        "enable_streaming", "choice", "Streaming in dynamic batches; in the other modes requests decide.",
        default="false", choices=("false", "true", "huggingface"),
    ),
    Option(
        "engine_stall_timeout", "float", "Seconds without a step, with requests in flight, after which the engine is "
        "killed and rebuilt; 0: never. A step may compute a long prompt.", default="300", least=0,
    ),
    # Limits.
    *LIMIT_OPTIONS,
    # Images.
    Option(
        "allowed_media_domains", "list", "Hosts that images may be fetched from: names, `*.example.com` for what is "
        "under one, `*` for any. Without it images come as data URLs only.",
    ),
    Option(
        "allowed_media_networks", "list", "Networks to fetch from although their addresses are not public, as "
        "`10.0.0.0/8`.",
    ),
    Option("allowed_local_media_path", "str", "Folder that `file://` URLs of images may point into."),
    Option(
        "image_fetch_timeout", "float", "Seconds that fetching an image may take, redirects included.", default="5",
        least=0.001,
    ),
    Option(
        "max_image_bytes", "int", "Bytes that the images of a prompt may have together, as sent or fetched.",
        default=str(LARGEST_IMAGES), least=1,
    ),
    Option(
        "max_image_pixels", "int", "Pixels that the images of a prompt may have together.", default=str(MOST_PIXELS),
        least=1,
    ),
    Option("enable_typical_p", "choice", "Take typical_p on vLLM; `auto`: unless it costs other requests speed.",
           default="auto", choices=("auto", "true", "false")),
    # Conversations.
    Option("chat_template", "str", "Chat template: a file, or Jinja text.", default="the model's"),
    Option(
        "chat_template_content_format", "choice", "How the template takes a message's content.",
        default="auto", choices=("auto", "string", "openai"),
    ),
    Option("tool_call_parser", "str", "How the model writes tool calls: one of vLLM's tool parsers.", default="none"),
    Option(
        "enable_auto_tool_choice", "bool", "Whether the model may choose to call tools.",
        default="true with a tool_call_parser",
    ),
    Option(
        "reasoning_parser", "str", "How the model sets its reasoning apart: one of vLLM's reasoning parsers.",
        default="none", argument="reasoning_parser",
    ),
    Option("enable_reasoning", "bool", "An older switch for reasoning_parser.", default="by reasoning_parser"),
    # vLLM's arguments that users set most.
    _vllm("max_model_len", "engine", "Longest prompt plus answer, in tokens; `32k` is 32,000.", "the model's"),
    _vllm("gpu_memory_utilization", "engine", "Share of each device's memory to use, up to 1."),
    _vllm("kv_cache_memory_bytes", "engine", "Bytes of KV cache on each device; at most 2 GiB on CPU unless set."),
    _vllm("load_format", "str", "How weights are read."),
    _vllm("tokenizer", "str", "Tokenizer: a hub id or a path.", "the model's"),
    _vllm("tokenizer_mode", "str", "Which tokenizer class to use."),
    _vllm("enforce_eager", "bool", "Skip the compilation of the model.", "false"),
    _vllm("enable_prefix_caching", "bool", "Reuse the KV cache of equal beginnings."),
    _vllm("enable_chunked_prefill", "bool", "Compute long prompts in pieces."),
    _vllm("speculative_config", "json", "Speculative decoding.", "none"),
    Option(
        "speculative_draft_model", "str", "Draft model of speculative decoding: a hub id, a path, or `ngram` for none.",
    ),
    Option("speculative_length", "int", "Tokens that are drafted at once.", default="4", least=1),
    Option("draft_model_tp_size", "int", "How many devices share each layer of the draft model.", default="1", least=1),
    _vllm("kv_transfer_config", "json", "Transfer of the KV cache.", "none"),
    _vllm("limit_mm_per_prompt", "json", "How many images, videos and the like one prompt may have."),
    _vllm("seed", "int", "The engine's seed."),
    Option(
        "runner", "choice", "How vLLM runs the model; `pooling` is for embeddings.", default="by the task",
        choices=("auto", "generate", "pooling"), reader="engine", argument="runner",
        unsupported_values={"draft": "draft models on their own"},
    ),
    Option(
        "convert", "choice", "What vLLM turns the model into.", default="by the task",
        choices=("auto", "none", "embed"), reader="engine", argument="convert", unsupported_values={"classify":
        _CLASSIFY},
    ),
    _vllm("pooler_config", "json", "How vLLM makes one vector of the tokens' (`pooling_type`).", "the model's"),
    Option(
        "backend", "reference",
        "Library that runs the model; `auto` is vLLM, and transformers for architectures that vLLM does not support. "
        "Or an engine of yours, as `module:name`.",
        default="by rolling_batch", choices=("auto", "vllm", "transformers"),
    ),
    # The transformers engine's.
    Option(
        "device_map", "str", "Where transformers puts the model, as `auto`. It needs accelerate.", default="one device",
    ),
    Option("load_in_8bit", "bool", "For transformers; the same as `quantize=bitsandbytes8`.", default="false"),
    Option("load_in_4bit", "bool", "For transformers; the same as `quantize=bitsandbytes4`.", default="false"),
    # What this version does not do.
    *_planned("Bedrock compatibility", bedrock_compat="false"),
    *_planned(
        "LoRA adapters", enable_lora="false", max_loras="4", max_lora_rank="16", max_cpu_loras="", lora_dtype="auto",
        lora_extra_vocab_size="256", long_lora_scaling_factors="", fully_sharded_loras="false", lora_target_modules="",
        default_mm_loras="", enable_tower_connector_lora="false", specialize_active_lora="false",
        enable_mixed_moe_lora_format="false", adapters="adapters",
    ),
    *_planned("parsers of the user's", reasoning_parser_plugin="", tool_parser_plugin=""),
    *_planned("other back ends' names for speculative decoding", draft_model_id="", spec_length="0"),
    *_planned("stateful sessions", sessions_path="", sessions_s3url="", sessions_expiration="1200"),
    *_planned(
        "configuring LMCache by options (`kv_transfer_config` and the environment variable LMCACHE_CONFIG_FILE are "
        "accepted)", lmcache_auto_config="false", lmcache_config_file="",
    ),
    *_planned("data parallelism within a worker", data_parallel_size="1"),
    *_planned("models without a tokenizer", skip_tokenizer_init="false"),
    # Without effect: upstream's default of the first is true, so that configurations may well write it.
    Option("enable_stateful_sessions", "bool", "Sessions.", default="true", reader="nobody"),
    Option("waiting_steps", "str", "For a scheduler that is no more.", reader="nobody"),
    Option("device", "choice", "vLLM finds the device.", choices=("auto", "cuda", "cpu"), reader="nobody"),
    # DJL Serving itself sets it for rolling_batch=trtllm.
    Option("max_num_tokens", "str", "TensorRT-LLM's.", reader="nobody"),
    Option("disable_flash_attn", "str", "vLLM chooses the kernel.", reader="nobody"),
    Option("low_cpu_mem_usage", "bool", "transformers always loads so.", reader="nobody"),
    *HOST_OPTIONS,
)
# fmt: on

_BY_NAME = {name: option for option in OPTIONS for name in option.names}


def find(name: str) -> Option | None:
    """The row of `name`, which may be an alias; None: not in the table."""
    return _BY_NAME.get(name)


def _row(option: Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.names)
    values = ", ".join(f"`{choice}`" for choice in option.choices if option.kind != "reference")
    return f"| {names} | {option.default or 'none'} | {values or option.expected} | {option.help} |"


def options_table() -> str:
    """The table for the README, in Markdown."""
    refused: dict[str, list[str]] = {}
    for option in OPTIONS:
        if option.unsupported:
            refused.setdefault(option.unsupported, []).append(f"`{option.name}`")
        for value, what in option.unsupported_values.items():
            refused.setdefault(what, []).append(f"`{option.name}={value}`")
    named = {
        reader: ", ".join(
            f"`{name}`" for option in OPTIONS if option.reader == reader and option.help for name in option.names
        )
        for reader in ("host", "nobody")
    }
    return "\n".join(
        [
            "| option | default | values | meaning |",
            "| --- | --- | --- | --- |",
            *(_row(option) for option in OPTIONS if option.reader in {"us", "engine"} and not option.unsupported),
            "",
            "Every other argument of vLLM's `EngineArgs` passes through under its own name: `option.max_logprobs=5`.",
            "The transformers engine has few of them and refuses the others by name.",
            "",
            f"DJL Serving's own keys keep their meaning: {named['host']}.",
            "",
            f"Accepted without effect: {named['nobody']}.",
            "",
            "What this version does not do, and the options that are refused at start because they ask for it:",
            "",
            *(f"- {what}: {', '.join(names)}" for what, names in refused.items()),
        ]
    )
