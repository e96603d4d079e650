"""The fields of OpenAI requests: literal tables, one row for each name, and what is made of them.

    {"temperature": 0.5, ...} --table--> values by key --sampling_of--> Sampling

The rows are OpenAI's and those that vLLM adds to them (common/vllm_fields.py). A field that is absent or null keeps the
default, which for most sampling fields is the model's generation_config. What nothing here can honour is refused by
name, unless the value is the one that changes nothing. The forms of messages, tools and guides are in messages.py,
tools.py and common/guides.py, which also know what they mean together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...model.errors import Fault, ParameterError, UnsupportedError
from ...model.generation import Sampling
from ...model.options import Settings
from ..common.fields import Parameter, Table, harmless, unserved
from ..common.forms import Form, Listed
from ..common.guides import GUIDES, guides_of_others
from ..common.kinds import SMALLEST, Boolean, Integer, Number, Text, Texts, Tree
from ..common.prompts import Prompts
from ..common.vllm_fields import SAMPLED, rows
from ..common.vllm_kinds import Likeliest
from ..dialect import JsonSchema
from .messages import MESSAGES
from .tools import TOOL_ROWS

__all__ = [
    "CHAT_ROWS", "CHAT_TABLE", "CHOICES", "DOCUMENTS", "SEQUENCES", "STREAM_OPTIONS",
    "TEXT_ROWS", "TEXT_TABLE", "chat_rows", "check_echo", "read_streaming", "sampling_of",
]  # fmt: skip

SEQUENCES = 128
"""The most that `n` may be, as in OpenAI's schema."""


def _off(*names: str) -> tuple[Parameter, ...]:
    """Switches that may be off only."""
    return tuple(Parameter(name, Boolean(), False, default_only=True) for name in names)


STREAM_OPTIONS = Form(
    {"include_usage": Boolean(), "include_obfuscation": Boolean(), "continuous_usage_stats": Boolean()}
)
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
    Parameter("stream_options", STREAM_OPTIONS, None, "stream_options"),
    *rows(*SAMPLED, "truncate_prompt_tokens", "truncation_side", "prompt_logprobs"),
    Parameter("length_penalty", Number(-100, 100), 1.0, default_only=True),
    *rows("priority", "cache_salt", "kv_transfer_params", "return_token_ids", "return_tokens_as_token_ids"),
    *_off("use_beam_search", "early_stopping", "return_prompt_text", "watermarking", "return_assistant_tokens_mask"),
    Parameter("routed_experts_prompt_start", Integer(0), 0, default_only=True),
    *unserved("ec_transfer_params", "logprob_token_ids", "logits_processors", "repetition_detection"),
    *rows("mm_processor_kwargs", "media_io_kwargs", "add_special_tokens"),
    *guides_of_others(*GUIDES),
    *(Parameter(name, kind, None, name) for name, kind in GUIDES.items()),
    *harmless("user", "request_id", "session_id", "guided_decoding_backend"),
    # Of vLLM's other routes; and how many tokens a chunk holds is ours to say.
    *harmless("return_token_offsets", "mm_payload", "return_mm_kwargs", "stream_interval"),
)

ONLY_TEXT: JsonSchema = {"const": "text"}


@dataclass(frozen=True, slots=True)
class OnlyText:
    """What an answer is made of."""

    schema = ONLY_TEXT
    description = "'text', the only one that is supported"

    def read(self, name: str, given: Any) -> str:
        if Text().read(name, given) != "text":
            raise UnsupportedError.of(name, given, self.description)
        return "text"


DOCUMENTS = 1024
"""The most that a template may be given."""
CHAT_TABLE: tuple[Parameter, ...] = (
    Parameter("messages", MESSAGES, None, "messages"),
    *TOOL_ROWS,
    *COMMON,
    Parameter("max_tokens", Integer(1), None, "max_tokens"),
    Parameter("max_completion_tokens", Integer(1), None, "max_completion_tokens"),
    Parameter("logprobs", Boolean(), None, "logprobs"),
    Parameter("top_logprobs", Likeliest(), None, "top_logprobs"),
    Parameter("parallel_tool_calls", Boolean(), None, "parallel_tool_calls"),
    Parameter("reasoning_effort", Text(), None, "reasoning_effort"),
    Parameter("modalities", Listed(OnlyText(), noun="'text'"), None, "modalities"),
    Parameter("documents", Listed(Tree(), most=DOCUMENTS, noun="objects"), None, "documents"),
    *rows("chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message"),
    *rows("include_reasoning"),
    Parameter("echo", Boolean(), None, "echo"),
    *unserved("audio", "web_search_options"),
    *harmless(
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
CHOICES = 2048
"""The most text completions that a request may ask for."""
TEXT_TABLE: tuple[Parameter, ...] = (
    Parameter("prompt", Prompts(CHOICES, may_be_empty=True), None, "prompt"),
    *COMMON,
    # With echo none is allowed: the answer is the prompt with its log-probabilities.
    Parameter("max_tokens", Integer(0), None, "max_tokens"),
    Parameter("logprobs", Likeliest(flag=True), None, "logprobs"),
    Parameter("echo", Boolean(), None, "echo"),
    Parameter("suffix", Text(), "", default_only=True),
    *unserved("prompt_embeds"),
)

CHAT_ROWS = Table(CHAT_TABLE, ("messages",))


def chat_rows(messages: Listed) -> Table:
    """The table of a dialect that has other messages."""
    return Table((*CHAT_TABLE, replace(CHAT_ROWS["messages"], kind=messages)), ("messages",))


TEXT_ROWS = Table(TEXT_TABLE, ("prompt",))
SAMPLING_KEYS = frozenset(Sampling.__struct_fields__) - {
    "logprobs",
    "prompt_logprobs",
    "max_tokens",
    "structured_output",
}


class Streaming(NamedTuple):
    """How an answer is to be sent."""

    streams: bool
    usage: bool = False
    """Whether a stream ends with the usage."""
    continuous_usage: bool = False
    """Whether each chunk has the usage so far, too (vLLM's)."""


def read_streaming(values: Mapping[str, Any]) -> Streaming:
    """`stream` and `stream_options`; raises ParameterError."""
    streams = bool(values.get("stream"))
    options = values.get("stream_options")
    if options is None:
        return Streaming(streams)
    if not streams:
        raise ParameterError.of("stream_options", options, "none without stream: true")
    usage = bool(options.get("include_usage"))
    # As vLLM's server: it goes with include_usage alone.
    return Streaming(streams, usage, usage and bool(options.get("continuous_usage_stats")))


def check_echo(length: int, n: int, settings: Settings) -> None:
    """Raises ParameterError where `n` echoes are too long for an answer: a prompt may be cut, they are not."""
    most = settings.limits.max_answer_bytes
    if length * n > most:
        raise ParameterError.because(
            Fault("echo", expected=f"at most {most} characters in all (option.max_answer_bytes)")
        )


def sampling_of(values: Mapping[str, Any], *, streams: bool, max_tokens: int | None, **more: Any) -> Sampling:
    """The sampling that the fields ask for; raises RequestError where they contradict each other."""
    prompt_logprobs = values.get("prompt_logprobs")
    if prompt_logprobs is not None and streams:
        raise UnsupportedError.because(Fault("prompt_logprobs", "not supported with stream: true"))
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
        raise UnsupportedError.because(Fault("best_of", f"above n ({n}) is not supported with stream: true"))
    return int(best_of)
