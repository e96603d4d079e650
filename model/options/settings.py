"""What a model directory's configuration says, once it is read. Fields with an Option declare what is kept as given.

A field without one is resolved from several options, or is what DJL Serving says (model/options/load.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from ..errors import OPTION
from .adapter_options import AdapterOptions
from .finding import Finding
from .media_rules import MediaRules
from .option import Option, port
from .parallel.options import ParallelOptions
from .session_options import ResponseStoreOptions, SessionOptions

__all__ = ["RESERVED_VARIABLES", "Limits", "OutputFormat", "Settings"]

OutputFormat = Literal["json", "jsonlines", "sse"]

_DTYPES = {
    "auto": "auto", "fp32": "float32", "float32": "float32", "float": "float32", "fp16": "float16",
    "float16": "float16", "half": "float16", "bf16": "bfloat16", "bfloat16": "bfloat16",
}  # fmt: skip


def _dtype(text: str) -> str:
    if text.lower() in _DTYPES:
        return _DTYPES[text.lower()]
    raise ValueError(f"one of {', '.join(_DTYPES)}")


def _degree(text: str) -> int | None:
    if text.lower() == "max":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("a number of at least 1, or max")
    return int(text)


RESERVED_VARIABLES = (
    "conversation", "messages", "model_config", "padding", "processor_kwargs", "return_assistant_tokens_mask",
    "return_dict", "return_tensors", "self", "tokenize", "tokenizer", "tokenizer_kwargs", "truncation", "max_length",
)  # fmt: skip
"""Names that no variable of a chat template has: they are arguments of the libraries' functions that apply it
(apply_chat_template of transformers and of vLLM). With `padding` and `max_length` one request has all the machine's
memory."""


def _variables(text: str) -> dict[str, Any]:
    expected = 'a JSON object with variables of the chat template, {"enable_thinking": false}'
    if text.lower() in {"none", "null"}:
        return {}
    try:
        given = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError(f"{expected} ({error})") from None
    if "chat_template" in given:
        raise ValueError(f"{expected} (the template itself is option.chat_template)")
    if found := given.keys() & {*RESERVED_VARIABLES}:
        raise ValueError(f"{expected} ({', '.join(sorted(found))} is none)")
    return given


# fmt: off
class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken on at most; None does not limit.

    What is beyond a limit is refused at once, or ended with an error: nothing waits or grows for ever.
    """

    max_queued_requests: Annotated[int, Option(
        "How many requests may wait beyond max_rolling_batch_size; further ones are refused at once (429).", ge=0,
    )] = 1000
    max_prompt_tokens: Annotated[int | None, Option(
        "Longest prompt in tokens, chat template included.", default="the context's", ge=1,
    )] = None
    max_tokens_in_flight: Annotated[int | None, Option(
        "Tokens of all running sequences together: their prompts and what they may generate; log-probabilities of a "
        "prompt count one for each token and each likely token. Requests beyond are refused at once (429).", ge=1,
    )] = None
    max_body_bytes: Annotated[int, Option("Longest body of a request (else 413).", ge=1)] = 16 << 20
    """While it is decoded nothing else runs in the worker: less than a tenth of a second (docs/robustness.md)."""
    max_unsent_bytes: Annotated[int, Option(
        "Bytes of one response that may wait for a slow client; the request is ended where more wait for 5 seconds.",
        ge=1,
    )] = 8 << 20
    max_answer_bytes: Annotated[int, Option(
        "Longest response that is not streamed; beyond it the request is ended. A token that is shown by itself "
        "counts 128, and so does each likely token beside it.", ge=1,
    )] = 128 << 20
    request_timeout: Annotated[float, Option(
        "Seconds from a request's arrival to the end of its response (else 504).", ge=0.001,
    )] = 3600.0
    user_code_timeout: Annotated[float, Option("Seconds that one call of your own code may take.", ge=0.001)] = 60.0


DOES = {"embed": "embeds", "rank": "scores", "classify": "scores"}
"""What a model does by its task, where it generates no text."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a model directory's configuration says. It travels to the engine's process as msgpack."""

    # The model.
    model_dir: str
    """The model directory, where serving.properties lies; absolute."""
    model_id: str
    """A hub id or an absolute path; by default the model directory."""
    model_name: str
    """The `model` field of OpenAI answers; by default the model directory as it was given."""
    own_name: str = ""
    """The model's, where `model_name` is that of the adapter that a request names."""
    backend: str = "vllm"
    """A name of the BACKENDS table, or the user's `module:name`."""
    task: str = "auto"
    """auto, generate (which auto is too), embed, rank or classify."""
    revision: Annotated[str | None, Option("Branch, tag or commit of a hub id.", argument="revision")] = None
    trust_remote_code: Annotated[bool, Option(
        "Run Python code that comes with the model.", argument="trust_remote_code",
    )] = False
    dtype: Annotated[str, Option(
        "Type of the weights.", choices=tuple(_DTYPES), convert=_dtype, argument="dtype",
    )] = "auto"
    """auto, float32, float16 or bfloat16."""
    normalize: Annotated[bool | None, Option(
        "Whether the vectors of `task=text-embedding` have length 1; a request may say otherwise.", default="true",
    )] = None
    """None: as the model's pooler is configured."""

    reranker: Annotated[Literal["qwen3", "mxbai-v2", "bge-gemma"] | None, Option(
        "Which reranker a causal model with `task=text-ranking` is: Qwen3-Reranker, mxbai-rerank-v2 or "
        "bge-reranker-v2-gemma, each with its tokens and its prompt.", default="none",
    )] = None

    # Batching and devices.
    rolling_batch: str = "vllm"
    """Resolved: never auto, and disable in async mode and for dynamic batches."""
    async_mode: Annotated[bool, Option("DJL's asynchronous mode; excludes rolling batch.")] = False
    max_rolling_batch_size: int = 256
    """How many sequences run at once at most; more wait."""
    tensor_parallel_degree: Annotated[int | None, Option(
        "How many devices of this host the worker uses: they share each layer. A number, or `max` for all of them. By "
        "its other name it is vLLM's own size, also with `data_parallel_size` and `nnodes`.", default="max",
        convert=_degree, aliases=("tensor_parallel_size",), argument="tensor_parallel_size", set_by_djl=True,
    )] = None
    pipeline_parallel_degree: Annotated[int, Option(
        "How many stages the layers are spread over.", ge=1,
        aliases=("pipeline_parallel_size",), argument="pipeline_parallel_size", set_by_djl=True,
    )] = 1
    engine_stall_timeout: Annotated[float, Option(
        "Seconds without a step, with requests in flight, after which the engine is killed and rebuilt; 0: never. "
        "A step may compute a long prompt.", ge=0,
    )] = 300.0

    # Requests and answers.
    dialect: Annotated[str | None, Option(
        "Wire dialect of every request.", default="by the request", convert=str.lower,
    )] = None
    """In lower case; whether there is such a dialect, formatters know."""
    tgi_compat: Annotated[bool, Option("Answer LMI's requests in the form of Hugging Face's TGI.")] = False
    output_formatter: OutputFormat | None = None
    custom_formatter: str | None = None
    """Another value of option.output_formatter: `module:name`, a dialect or user function."""
    input_formatter: Annotated[str | None, Option(
        "Your own function that makes the payload of each request.", kind="reference", default="model.py's",
    )] = None
    content_filter: Annotated[str | None, Option(
        "Your own function that accepts or rejects prompts and generated text.", kind="reference",
    )] = None
    user_code_threads: Annotated[int | None, Option(
        "How many threads run your own code at most.", default="max_rolling_batch_size", ge=1,
    )] = None
    unknown_parameters: Annotated[Literal["ignore", "error"], Option(
        "What to do with unknown generation parameters.",
    )] = "ignore"
    server_tools: Annotated[Literal["ignore", "error"], Option(
        "What to do with tools that only the maker of a model can run (web search, MCP servers ...): leave them out, "
        "or refuse the request.",
    )] = "ignore"
    unknown_models: Annotated[Literal["base", "error"], Option(
        "What an OpenAI request gets whose `model` is neither this one nor an adapter: this one, or a 404.",
    )] = "base"
    parameter_schema: Annotated[Literal["common", "trtllm"] | None, Option(
        "Whose defaults LMI's parameters have: TensorRT-LLM's, or those of the other back ends.",
        default="by rolling_batch",
    )] = None
    enable_typical_p: Annotated[Literal["auto", "true", "false"], Option(
        "Accept typical_p on vLLM; `auto`: unless it slows down other requests.",
    )] = "auto"
    enable_streaming: bool = False
    reasoning_content: Annotated[bool, Option(
        "Whether a chat's reasoning is also sent by its older name, `reasoning_content`.")] = True
    merge_records: Annotated[Literal["auto", "true", "false"], Option(
        "Whether chunks of a stream may be fewer and longer; `auto`: those of text, while Java is behind.")] = "auto"
    log_requests: Annotated[Literal["false", "summary", "true"], Option(
        "Log a line for each request; `true` also logs prompts and responses.",
    )] = "false"
    metrics_interval: Annotated[float, Option(
        "Seconds between log lines with metrics behind DJL Serving; 0: none.", ge=0)] = 60.0
    metrics_port: Annotated[int | None, Option(
        "Behind DJL Serving, a port where the worker answers `GET /metrics`.", default="none", convert=port)] = None
    limits: Limits = Limits()
    media: MediaRules = MediaRules()
    adapters: AdapterOptions = AdapterOptions()
    sessions: SessionOptions = SessionOptions()
    responses: ResponseStoreOptions = ResponseStoreOptions()
    parallel: ParallelOptions = ParallelOptions()

    # Conversations.
    chat_template: Annotated[str | None, Option(
        "Chat template: a file, or Jinja text.", default="the model's",
    )] = None
    """A file's path may be relative to the model directory."""
    request_chat_template: Annotated[bool, Option(
        "Whether a request may bring a chat template of its own (`chat_template`). A template is a program, which may "
        "run for hours or take all memory: for clients whom you trust.",
        aliases=("trust_request_chat_template",),
    )] = False
    chat_template_content_format: Annotated[Literal["auto", "string", "openai"], Option(
        "Format of a message's content in the template.",
    )] = "auto"
    default_chat_template_kwargs: Annotated[Mapping[str, Any], Option(
        'Variables of the chat template in requests that do not say them: `{"enable_thinking": false}`.',
        kind="json", default="none", convert=_variables,
    )] = {}
    exclude_tools_when_tool_choice_none: Annotated[bool, Option(
        "Whether the prompt leaves out the tools where `tool_choice` is `none`.",
    )] = False
    tool_call_parser: Annotated[str | None, Option(
        "One of vLLM's tool parsers.",
    )] = None
    """None, also with enable_auto_tool_choice=false: no call is taken out of the text unless a request forces it."""
    reasoning_parser: Annotated[str | None, Option(
        "One of vLLM's reasoning parsers.", argument="reasoning_parser",
    )] = None

    tool_parser_plugin: Annotated[str | None, Option(
        "A Python file of yours that registers tool parsers with vLLM.",
    )] = None
    reasoning_parser_plugin: Annotated[str | None, Option(
        "A Python file of yours that registers reasoning parsers with vLLM.", argument="reasoning_parser_plugin",
    )] = None
    """Both are absolute paths here; given, they may be relative to the model directory."""

    # The KV cache beyond the device.
    lmcache_config_file: Annotated[str | None, Option(
        "LMCache's configuration: a file, absolute or in the model directory. Requires `kv_transfer_config`.",
    )] = None
    """An absolute path."""
    lmcache_auto_config: Annotated[bool, Option(
        "Use LMCache, with caches in memory and in `/tmp` of sizes that fit the machine.",
    )] = False

    # The engine and the host.
    engine_arguments: dict[str, str] = {}
    """The engine's own arguments by its own names, values as they were given: what was set, and model, dtype and
    max_num_seqs always. tensor_parallel_size is missing for `max`."""
    unprefixed: tuple[str, ...] = ()
    """Those of `engine_arguments` that stand in serving.properties without `option.`, or in the environment as
    `ARGS_*`: DJL delivers such keys too, which may be meant for others, so that the engine's side ignores the ones that
    it does not know."""
    host: dict[str, str] = {}
    """DJL Serving's own options, as they were given."""
    sources: dict[str, str] = {}
    """By option, under all its names, the variable that its value came from (environment/reading.py)."""
    written: dict[str, str] = {}
    """By option, and by the engine's argument, the name that the user wrote for it, where that is another: an alias, or
    an option that says the same. Messages name it."""
    notes: tuple[Finding, ...] = ()
    """What a user should know: logged once by `settings_of`."""

    def called(self, option: str) -> str:
        """What messages call an option: the variable that it came from, or its name."""
        return self.sources.get(option) or OPTION + option

    @property
    def embeds(self) -> bool:
        """Whether the model makes vectors of texts, and no text."""
        return DOES.get(self.task) == "embeds"

    @property
    def scores(self) -> bool:
        """Whether the model scores pairs of texts or classifies texts, and generates no text."""
        return DOES.get(self.task) == "scores"

    @property
    def pools(self) -> bool:
        """Whether the model generates no text."""
        return self.embeds or self.scores

    @property
    def dynamic_batch(self) -> bool:
        """Whether the host hands over whole batches and waits for all of their answers."""
        return self.rolling_batch == "disable" and not self.async_mode
# fmt: on
