"""The bodies of /v1/responses, typed (OpenAI's API reference: Responses, The response object).

    ResponseBody                               a response, whole, and as it is in a stream's events
    OutputMessage, FunctionCall, CustomCall,
    Reasoning                                  the items of its output
    Stored                                     what is kept of a response: it, and what it answered

Every field is always there, null where there is nothing to say, but for the `namespace` of a tool that has none.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..openai.logprobs import TokenLogprob

__all__ = [
    "CustomCall",
    "FunctionCall",
    "IncompleteDetails",
    "Item",
    "ItemStatus",
    "OutputMessage",
    "OutputText",
    "Part",
    "Reasoning",
    "ReasoningOptions",
    "ReasoningText",
    "ResponseBody",
    "ResponseFault",
    "ResponseUsage",
    "Stored",
]

ItemStatus = Literal["in_progress", "completed", "incomplete"]
Status = Literal["in_progress", "completed", "incomplete", "failed"]


class OutputText(msgspec.Struct, frozen=True, tag="output_text", tag_field="type"):
    """The text of a message."""

    text: str
    annotations: list[Any] = []
    logprobs: list[TokenLogprob] = []


class ReasoningText(msgspec.Struct, frozen=True, tag="reasoning_text", tag_field="type"):
    """The text of a reasoning."""

    text: str


Part = OutputText | ReasoningText


class OutputMessage(msgspec.Struct, frozen=True, kw_only=True, tag="message", tag_field="type"):
    """What the model says."""

    id: str
    status: ItemStatus
    role: str = "assistant"
    content: list[OutputText] = []


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True, tag="function_call", tag_field="type"):
    """A function that the model calls, with its arguments as JSON text."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str = ""
    namespace: str | msgspec.UnsetType = msgspec.UNSET


class CustomCall(msgspec.Struct, frozen=True, kw_only=True, tag="custom_tool_call", tag_field="type"):
    """A custom tool that the model calls, with its input."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    input: str = ""
    namespace: str | msgspec.UnsetType = msgspec.UNSET


class Reasoning(msgspec.Struct, frozen=True, kw_only=True, tag="reasoning", tag_field="type"):
    """What the model thinks. It is not summed up."""

    id: str
    status: ItemStatus
    summary: list[Any] = []
    content: list[ReasoningText] = []
    encrypted_content: str | None = None
    """It again, where the request includes it (conversation/carried.py)."""


Item = OutputMessage | FunctionCall | CustomCall | Reasoning


class InputDetails(msgspec.Struct, frozen=True):
    """Of the prompt's tokens."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct, frozen=True):
    """Of the generated tokens."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True):
    """How many tokens there were."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int

    @classmethod
    def of(cls, prompt: int, cached: int, generated: int, reasoning: int) -> ResponseUsage:
        """From the counts."""
        return cls(prompt, InputDetails(cached), generated, OutputDetails(reasoning), prompt + generated)


class ReasoningOptions(msgspec.Struct, frozen=True):
    """`reasoning` of the request."""

    effort: str | None = None
    summary: str | None = None


class IncompleteDetails(msgspec.Struct, frozen=True):
    """Why a response is not complete."""

    reason: Literal["max_output_tokens", "content_filter"]


class ResponseFault(msgspec.Struct, frozen=True):
    """Why a response failed."""

    code: str
    message: str


class ResponseBody(msgspec.Struct, frozen=True, kw_only=True):
    """A response, with what its request asked for."""

    id: str
    object: str = "response"
    created_at: int
    status: Status = "in_progress"
    background: bool = False
    completed_at: int | None = None
    error: ResponseFault | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    model: str
    output: list[Item] = []
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    reasoning: ReasoningOptions = ReasoningOptions()
    safety_identifier: str | None = None
    service_tier: str = "default"
    """Which one served it: there is one."""
    store: bool = False
    temperature: float | None = None
    """As it was given; null is the model's own default. So is `top_p`."""
    text: dict[str, Any]
    tool_choice: str | dict[str, Any] = "auto"
    tools: list[dict[str, Any]] = []
    top_logprobs: int = 0
    top_p: float | None = None
    truncation: str = "disabled"
    usage: ResponseUsage | None = None
    user: str | None = None
    metadata: dict[str, str] = {}


class Stored(msgspec.Struct, frozen=True):
    """A response that is kept."""

    response: msgspec.Raw
    """Its body."""
    input: msgspec.Raw
    """The items that it answered, with that of the responses that it continues, and their output."""
