"""The bodies of OpenAI answers, typed (docs/decisions.md: Complete chat responses).

    ChatBody, ChatChunk    chat completions, whole and a chunk of a stream
    TextBody, TextChunk    text completions
    ErrorBody              any error

The order of the fields is the documents'. Every field is always there, null where there is nothing to say, but those
that may be UNSET.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ...model.errors import LmiError, OverloadedError, RequestError, UnauthorizedError
from .logprobs import ChatLogprobs, PromptLogprobs, TextLogprobs

__all__ = [
    "ChatBody", "ChatChoice", "ChatChunk", "ChatChunkChoice", "ChatDelta", "CompletionDetails", "ErrorBody",
    "FinishWord", "Function", "FunctionChunk", "Message", "PromptDetails", "TextBody", "TextChoice", "TextChunk",
    "TextChunkChoice", "TokenIds", "ToolCall", "ToolCallChunk", "Usage", "error_body",
]  # fmt: skip

TokenIds = tuple[int, ...] | list[int] | UnsetType
FinishWord = Literal["stop", "length", "tool_calls", "function_call", "content_filter"]


class PromptDetails(msgspec.Struct, frozen=True):
    """The streaming document, Prompt Tokens Details."""

    cached_tokens: int = 0
    audio_tokens: int = 0


class CompletionDetails(msgspec.Struct, frozen=True):
    """The streaming document, Completion Tokens Details."""

    reasoning_tokens: int = 0
    audio_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class Usage(msgspec.Struct, frozen=True):
    """The streaming document, Usage Object (docs/decisions.md: Usage)."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails | UnsetType = UNSET


class Function(msgspec.Struct, frozen=True):
    """What is called, with its arguments as JSON text."""

    name: str
    arguments: str


class CustomInput(msgspec.Struct, frozen=True):
    """The custom tool that is called, with its input as text; in a stream the name comes first, then the input."""

    name: str | UnsetType
    input: str


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call of a whole answer."""

    id: str
    function: Function | UnsetType
    type: str = "function"
    custom: CustomInput | UnsetType = UNSET


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """The completions document, `message`."""

    role: str = "assistant"
    content: str | None
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: Function | None = None
    tool_calls: list[ToolCall] = []
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    """The same, by its older name."""


class ChatChoice(msgspec.Struct, frozen=True):
    """A choice of a whole chat completion."""

    index: int
    message: Message
    logprobs: ChatLogprobs | None
    finish_reason: FinishWord
    stop_reason: str | int | None
    token_ids: TokenIds = UNSET
    """All that was generated, with return_token_ids."""


class ChatBody(msgspec.Struct, frozen=True, kw_only=True):
    """The completions document: chat completion, not streamed."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    service_tier: None = None
    system_fingerprint: None = None
    usage: Usage
    prompt_logprobs: PromptLogprobs | None = None
    prompt_token_ids: TokenIds = UNSET
    """With return_token_ids."""
    kv_transfer_params: dict[str, Any] | None = None


class FunctionChunk(msgspec.Struct, frozen=True, gc=False):
    """What is new of a function's name and arguments."""

    name: str | UnsetType
    arguments: str


class ToolCallChunk(msgspec.Struct, frozen=True):
    """A piece of a tool call. id, type and name come once (docs/decisions.md: Tool calls in chunks)."""

    index: int
    id: str | UnsetType
    type: str | UnsetType
    function: FunctionChunk | UnsetType
    custom: CustomInput | UnsetType = UNSET


class ChatDelta(msgspec.Struct, frozen=True):
    """What is new, and nothing else (docs/decisions.md: Fields left out of chat chunks)."""

    role: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    """The same, by its older name."""
    content: str | UnsetType = UNSET
    tool_calls: list[ToolCallChunk] | UnsetType = UNSET
    function_call: FunctionChunk | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True):
    """A choice of a chunk."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishWord | None = None
    stop_reason: str | int | None = None
    token_ids: TokenIds = UNSET
    """Those that are new, with return_token_ids."""


class ChatChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk (docs/decisions.md: Chat chunks). `usage` only with include_usage, `prompt_token_ids` in a choice's first
    chunk with return_token_ids."""

    id: str
    object: str = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: TokenIds = UNSET


class TextChoice(msgspec.Struct, frozen=True):
    """A choice of a whole text completion."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: FinishWord
    stop_reason: str | int | None
    prompt_logprobs: PromptLogprobs | None = None
    prompt_token_ids: TokenIds = UNSET
    token_ids: TokenIds = UNSET
    """All that was generated. Both with return_token_ids."""


class TextBody(msgspec.Struct, frozen=True, kw_only=True):
    """The completions document: text completion, not streamed."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    service_tier: None = None
    system_fingerprint: None = None
    usage: Usage
    kv_transfer_params: dict[str, Any] | None = None


class TextChunkChoice(msgspec.Struct, frozen=True):
    """A choice of a chunk."""

    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: FinishWord | None = None
    stop_reason: str | int | None = None
    prompt_token_ids: TokenIds = UNSET
    """In a choice's first chunk, with return_token_ids."""
    token_ids: TokenIds = UNSET
    """Those that are new, with return_token_ids."""


class TextChunk(msgspec.Struct, frozen=True, kw_only=True):
    """The completions document: text completion, streamed. `usage` is there, null, without include_usage too."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[TextChunkChoice]
    usage: Usage | None = None


class ErrorObject(msgspec.Struct, frozen=True):
    """The streaming document, Error Handling."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of an error; in a stream the last chunk."""

    error: ErrorObject


ERROR_TYPES: tuple[tuple[type[LmiError], str], ...] = (
    (UnauthorizedError, "authentication_error"),
    (OverloadedError, "rate_limit_error"),
    (RequestError, "invalid_request_error"),
    (LmiError, "server_error"),
)
"""OpenAI's words; the first that fits."""


def error_body(error: LmiError) -> ErrorBody:
    """The body for `error`."""
    word = next(word for kind, word in ERROR_TYPES if isinstance(error, kind))
    return ErrorBody(ErrorObject(error.message, word, error.param, error.code))
