"""The fields that vLLM adds to requests, each declared once: a dialect's table takes the rows of those that it serves.

    rows("min_p", "cache_salt")        rows of OpenAI's tables: what is not given stays as the engine has it
    row("top_k", 0)                    a row with a default of the dialect's own, or with a name of its own

What a field means is what it means to vLLM's own server (vllm/entrypoints/openai/*/protocol.py), within bounds: what is
sent to the engine is kept there, and looked at in steps that all requests share.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .fields import Parameter
from .kinds import LARGEST_ID, SMALLEST, Boolean, Integer, Number, Text, Texts, Tree
from .prompts import Ids
from .vllm_kinds import Arguments, Biases, Likeliest, MediaArguments, RequestTemplate, Salt, SomeIds, Truncation

__all__ = ["FIELDS", "GENERATION_KEYS", "SAMPLED", "UNANSWERED", "row", "rows"]

FIELDS: Mapping[str, Parameter] = {
    field.name: field
    for field in (
        # How tokens are chosen.
        Parameter("presence_penalty", Number(-2, 2), None, "presence_penalty"),
        Parameter("frequency_penalty", Number(-2, 2), None, "frequency_penalty"),
        Parameter("logit_bias", Biases(), None, "logit_bias"),
        Parameter("top_k", Integer(-1, LARGEST_ID), None, "top_k", equivalents={-1: 0}),
        Parameter("min_p", Number(0, 1), None, "min_p"),
        # Bounded well inside a float32: masked logits divided by infinity are NaN.
        Parameter("repetition_penalty", Number(0.01, 100), None, "repetition_penalty"),
        Parameter("bad_words", Texts(), None, "bad_words"),
        Parameter("allowed_token_ids", SomeIds(), None, "allowed_token_ids"),
        Parameter("vllm_xargs", Arguments(), None, "extra_args"),
        # Where the answer ends.
        Parameter("min_tokens", Integer(0), None, "min_tokens"),
        Parameter("ignore_eos", Boolean(), None, "ignore_eos"),
        Parameter("stop_token_ids", Ids(), None, "stop_token_ids"),
        # -1: nowhere. Model runners keep it in 32 bits.
        Parameter("thinking_token_budget", Integer(-1, LARGEST_ID), None, "thinking_token_budget",
                  equivalents={-1: None}),
        # What of it is shown.
        Parameter("skip_special_tokens", Boolean(), None, "skip_special_tokens"),
        Parameter("spaces_between_special_tokens", Boolean(), None, "spaces_between_special_tokens"),
        Parameter("include_stop_str_in_output", Boolean(), None, "include_stop"),
        Parameter("include_reasoning", Boolean(), None, "include_reasoning"),
        Parameter("prompt_logprobs", Likeliest(), None, "prompt_logprobs"),
        Parameter("return_token_ids", Boolean(), None, "return_token_ids"),
        Parameter("return_tokens_as_token_ids", Boolean(), None, "return_tokens_as_token_ids"),
        # The prompt.
        Parameter("truncate_prompt_tokens", Truncation(), None, "truncate"),
        Parameter("truncation_side", Text(("left", "right")), None, "cut"),
        Parameter("add_special_tokens", Boolean(), None, "add_special_tokens"),
        Parameter("chat_template", RequestTemplate(), None, "chat_template"),
        Parameter("chat_template_kwargs", Tree(), None, "template_arguments"),
        Parameter("add_generation_prompt", Boolean(), None, "add_generation_prompt"),
        Parameter("continue_final_message", Boolean(), None, "continue_final_message"),
        Parameter("mm_processor_kwargs", MediaArguments(), None, "processor_arguments"),
        Parameter("media_io_kwargs", MediaArguments(by_kind=True), None, "reader_arguments"),
        # The request.
        Parameter("priority", Integer(SMALLEST), None, "priority"),
        Parameter("cache_salt", Salt(), None, "cache_salt"),
        Parameter("kv_transfer_params", Tree(), None, "kv_transfer_params"),
    )
}  # fmt: skip
"""By name. None as the default leaves it to the engine."""

SAMPLED = (
    "top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "skip_special_tokens",
    "spaces_between_special_tokens", "stop_token_ids", "include_stop_str_in_output", "bad_words", "allowed_token_ids",
    "thinking_token_budget", "vllm_xargs",
)  # fmt: skip
"""What chooses the text: any dialect whose answers have a text may take it."""

GENERATION_KEYS = ("priority", "cache_salt", "kv_transfer_params")
"""Keys that are fields of Generation, whatever the prompt is."""


def row(name: str, default: Any = None, *, called: str = "") -> Parameter:
    """A field's row, with a default of the dialect's own; `called`: its name there."""
    return dataclasses.replace(FIELDS[name], default=default, name=called or name)


def rows(*names: str) -> tuple[Parameter, ...]:
    """The rows of fields."""
    return tuple(FIELDS[name] for name in names)


UNANSWERED = (
    *rows("add_special_tokens", "chat_template", "chat_template_kwargs", "mm_processor_kwargs", "media_io_kwargs"),
    row("add_generation_prompt", False),
    row("continue_final_message", False),
)
"""What says how the messages become a prompt where they are embedded or classified. add_special_tokens is of texts too,
where it is true by default.
"""
