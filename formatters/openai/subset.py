"""What of a chat request is accepted by a dialect that has OpenAI's reader, but answers in a form of its own.

Such a dialect names the fields that it takes, those of which its answers show what they ask for. Every other field that
the reader knows is refused by name, one that the reader learns later too, unless its value asks for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ...model.errors import Fault, UnsupportedError
from ..base import Payload
from ..common.vllm_fields import SAMPLED
from .parameters import CHAT_ROWS, STREAM_OPTIONS

__all__ = ["TEXT_FIELDS", "known_fields", "other_fields", "refuse_others"]

TEXT_FIELDS = frozenset(
    {
        "messages", "documents", "modalities", "stream", "stream_options", "stream_options.include_obfuscation",
        "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed",
        "presence_penalty", "frequency_penalty", "logit_bias", "best_of", "stop", *SAMPLED, "truncate_prompt_tokens",
        "truncation_side", "priority", "cache_salt", "reasoning_effort", "include_reasoning", "chat_template",
        "chat_template_kwargs", "mm_processor_kwargs", "media_io_kwargs", "add_generation_prompt",
        "continue_final_message", "add_special_tokens", "response_format", "structured_outputs", "guided_json",
        "guided_json_object", "guided_regex", "guided_choice", "guided_grammar",
    }
)  # fmt: skip
"""What chooses the text and asks for nothing else: any dialect whose answers have a text may take it."""

ASKS_NOTHING: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "top_logprobs": (0,),
    "parallel_tool_calls": (True,),
    "tool_choice": ("none", "auto", {"type": "none"}, {"type": "auto"}),
    "function_call": ("none", "auto"),
}
"""By field, the values besides null, false and what is empty that are the same as leaving it out."""


def known_fields() -> Iterator[str]:
    """The fields of a chat request that ask for something; `stream_options` has its members beside it."""
    for name, row in CHAT_ROWS.items():
        # What is served with one value only, or changes nothing, the reader itself refuses or ignores.
        if row.key is not None and not row.default_only:
            yield name
    yield from (f"stream_options.{name}" for name in STREAM_OPTIONS.fields)


def other_fields(accepted: Collection[str]) -> frozenset[str]:
    """The fields that ask for something and are not `accepted`."""
    return frozenset(known_fields()) - {*accepted}


def refuse_others(payload: Payload, accepted: Collection[str]) -> None:
    """Raises UnsupportedError for the first field of a chat request that asks for something and is not `accepted`."""
    given: dict[str, Any] = dict(payload)
    if isinstance(options := payload.get("stream_options"), dict):
        given |= {f"stream_options.{name}": value for name, value in options.items()}
    for name in known_fields():
        value = given.get(name)
        if name in accepted or value is None or value is False or value in ([], {}, *ASKS_NOTHING.get(name, ())):
            continue
        raise UnsupportedError.because(Fault(name, "not supported, the responses of this API cannot show it"))
