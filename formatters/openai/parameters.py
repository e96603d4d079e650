"""The plain fields of OpenAI requests: literal tables, one row for each name, and what is made of them.

    {"temperature": 0.5, ...} --table--> values by key --sampling_of--> Sampling

The rows are OpenAI's and those that vLLM adds to them (common/vllm_fields.py). A field that is absent or null keeps the
default, which for most sampling fields is the model's generation_config. What nothing here can honour is refused by
name, unless the value is the one that changes nothing. Fields with a form of their own (messages, tools,
response_format ...) are read by messages.py, tools.py and common/guides.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...model.errors import ParameterError, PayloadError, UnsupportedError
from ...model.generation import Sampling
from ...model.options import Settings
from ..base import Payload
from ..common.fields import Parameter, handle_unknown_field
from ..common.guide_rows import guides_of_others
from ..common.guides import GUIDES
from ..common.kinds import SMALLEST, Anything, Boolean, Integer, Number, Object, Text, Texts, read_field
from ..common.vllm_fields import SAMPLED, rows
from ..common.vllm_kinds import Likeliest

__all__ = ["CHAT_TABLE", "SEQUENCES", "TEXT_TABLE", "check_echo", "read_fields", "read_streaming", "sampling_of"]

SEQUENCES = 128
"""The most that `n` may be, as in OpenAI's schema."""


def _unserved(*names: str) -> tuple[Parameter, ...]:
    """Fields that would change the answer, or whom it may be shown to: null alone is served."""
    return tuple(Parameter(name, Anything(), None, default_only=True) for name in names)


def _off(*names: str) -> tuple[Parameter, ...]:
    """Switches that may be off only."""
    return tuple(Parameter(name, Boolean(), False, default_only=True) for name in names)


def _harmless(*names: str) -> tuple[Parameter, ...]:
    """Fields that change nothing in an answer."""
    return tuple(Parameter(name, Anything(), None) for name in names)


COMMON: tuple[Parameter, ...] = (
    # Any model is accepted, the answer carries our name (docs/decisions.md: The model's name).
    Parameter("model", Text(), None),
    Parameter("temperature", Number(0, 2), None, "temperature"),
    Parameter("top_p", Number(0, 1, above=True), None, "top_p"),
    Parameter("n", Integer(1, SEQUENCES), None, "n"),
    # OpenAI has it for text completions, vLLM had it for chat too.
    Parameter("best_of", Integer(1, SEQUENCES), None, "best_of"),
    # Of -1 vLLM makes a random one.
    Parameter("seed", Integer(SMALLEST), None, "seed", equivalents={-1: None}),
    Parameter("stop", Texts(), None, "stop"),
    *rows("presence_penalty", "frequency_penalty", "logit_bias"),
    Parameter("stream", Boolean(), None, "stream"),
    Parameter("stream_options", Object(), None, "stream_options"),
    *rows(*SAMPLED, "truncate_prompt_tokens", "truncation_side", "prompt_logprobs"),
    Parameter("length_penalty", Number(-100, 100), 1.0, default_only=True),
    *rows("priority", "cache_salt", "kv_transfer_params", "return_token_ids", "return_tokens_as_token_ids"),
    *_off("use_beam_search", "early_stopping", "return_prompt_text", "watermarking", "return_assistant_tokens_mask"),
    Parameter("routed_experts_prompt_start", Integer(0), 0, default_only=True),
    *_unserved("ec_transfer_params", "logprob_token_ids", "logits_processors", "repetition_detection"),
    *rows("mm_processor_kwargs", "media_io_kwargs", "add_special_tokens"),
    *guides_of_others(*GUIDES),
    *_harmless("user", "request_id", "session_id", "guided_decoding_backend"),
    # Of vLLM's other routes; and how many tokens a chunk holds is ours to say.
    *_harmless("return_token_offsets", "mm_payload", "return_mm_kwargs", "stream_interval"),
)

CHAT_TABLE: tuple[Parameter, ...] = (
    *COMMON,
    Parameter("max_tokens", Integer(1), None, "max_tokens"),
    Parameter("max_completion_tokens", Integer(1), None, "max_completion_tokens"),
    Parameter("logprobs", Boolean(), None, "logprobs"),
    Parameter("top_logprobs", Likeliest(), None, "top_logprobs"),
    Parameter("parallel_tool_calls", Boolean(), None, "parallel_tool_calls"),
    Parameter("reasoning_effort", Text(), None, "reasoning_effort"),
    *rows("chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message"),
    *rows("include_reasoning"),
    Parameter("echo", Boolean(), None, "echo"),
    *_unserved("audio", "web_search_options"),
    *_harmless(
        "metadata",
        "moderation",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "verbosity",
    ),
)
CHAT_FORMS = ("messages", "tools", "tool_choice", "functions", "function_call", "modalities", "documents")
"""Of a chat request, read elsewhere."""

TEXT_TABLE: tuple[Parameter, ...] = (
    *COMMON,
    # With echo none is allowed: the answer is the prompt with its log-probabilities.
    Parameter("max_tokens", Integer(0), None, "max_tokens"),
    Parameter("logprobs", Likeliest(flag=True), None, "logprobs"),
    Parameter("echo", Boolean(), None, "echo"),
    Parameter("suffix", Text(), "", default_only=True),
    *_unserved("prompt_embeds"),
)
TEXT_FORMS = ("prompt",)

GUIDE_FORMS = tuple(GUIDES)

CHAT_ROWS = {row.name: row for row in CHAT_TABLE}
TEXT_ROWS = {row.name: row for row in TEXT_TABLE}
SAMPLING_KEYS = frozenset(Sampling.__struct_fields__) - {
    "logprobs",
    "prompt_logprobs",
    "max_tokens",
    "structured_output",
}


def read_fields(payload: Payload, settings: Settings, *, chat: bool) -> dict[str, Any]:
    """What the plain fields say, by key; what is absent or null is not in it. Raises RequestError, naming the field."""
    known, forms = (CHAT_ROWS, CHAT_FORMS) if chat else (TEXT_ROWS, TEXT_FORMS)
    values: dict[str, Any] = {}
    for name, given in payload.items():
        if given is None:
            continue
        row = known.get(name)
        if row is None:
            if name not in forms and name not in GUIDE_FORMS:
                handle_unknown_field(name, (*known, *forms, *GUIDE_FORMS), settings)
            continue
        value = read_field(row.kind, name, given, settings)
        if row.equivalents:
            value = row.equivalents.get(value, value)
        if row.default_only and value != row.default:
            raise row.refused(name, value)
        if row.key is not None:
            values[row.key] = value
    return values


STREAM_OPTIONS = ("include_usage", "include_obfuscation", "continuous_usage_stats")


class Streaming(NamedTuple):
    """How an answer is to be sent."""

    streams: bool
    usage: bool = False
    """Whether a stream ends with the usage."""
    continuous_usage: bool = False
    """Whether each chunk has the usage so far, too (vLLM's)."""


def read_streaming(values: Mapping[str, Any], settings: Settings) -> Streaming:
    """`stream` and `stream_options`; raises RequestError."""
    streams = bool(values.get("stream"))
    options = values.get("stream_options")
    if options is None:
        return Streaming(streams)
    if not streams:
        raise ParameterError.of("stream_options", options, "none without stream: true")
    for name, given in options.items():
        if given is None:
            continue
        shown = f"stream_options.{name[:64]}"
        if name not in STREAM_OPTIONS:
            handle_unknown_field(name, STREAM_OPTIONS, settings, "stream_options.")
        elif not isinstance(given, bool):
            raise PayloadError.of(shown, given, "true or false")
    usage = bool(options.get("include_usage"))
    # As vLLM's server: it goes with include_usage alone.
    return Streaming(streams, usage, usage and bool(options.get("continuous_usage_stats")))


def check_echo(length: int, n: int, settings: Settings) -> None:
    """Raises ParameterError where `n` echoes are too long for an answer: a prompt may be cut, they are not."""
    most = settings.limits.max_answer_bytes
    if length * n > most:
        raise ParameterError(f"echo: expected at most {most} characters in all (option.max_answer_bytes)", "echo")


def sampling_of(values: Mapping[str, Any], *, streams: bool, max_tokens: int | None, **more: Any) -> Sampling:
    """The sampling that plain fields ask for; raises RequestError where they contradict each other."""
    prompt_logprobs = values.get("prompt_logprobs")
    if prompt_logprobs is not None and streams:
        raise UnsupportedError("prompt_logprobs: not supported with stream: true", "prompt_logprobs")
    min_tokens = values.get("min_tokens", 0)
    if max_tokens is not None and min_tokens > max_tokens:
        raise ParameterError.of("min_tokens", min_tokens, f"an integer up to {max_tokens} (max_tokens)")
    given = {key: value for key, value in values.items() if key in SAMPLING_KEYS}
    given["best_of"] = _best_of(values, streams)
    return Sampling(**{**given, "prompt_logprobs": prompt_logprobs, "max_tokens": max_tokens, **more})


def _best_of(values: Mapping[str, Any], streams: bool) -> int | None:
    """How many sequences to choose from; None where there is nothing to choose."""
    n, best_of = values.get("n", 1), values.get("best_of")
    if best_of is None or best_of == n:
        return None
    if best_of < n:
        raise ParameterError.of("best_of", best_of, f"an integer from {n} (n) to {SEQUENCES}")
    if streams:
        raise UnsupportedError(f"best_of: above n ({n}) is not supported with stream: true", "best_of")
    return int(best_of)
