"""The bodies of Anthropic's answers, typed, in the order of its documentation's examples.

MessageBody                         a whole answer
MessageStart, BlockStart, BlockDelta, BlockStop, MessageDelta, MessageStop, Ping   the events of a stream
TokenCount                          the answer of count_tokens
ErrorBody                           any error
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

__all__ = [
    "Block",
    "BlockDelta",
    "BlockStart",
    "BlockStop",
    "ErrorBody",
    "ErrorObject",
    "InputDelta",
    "MessageBody",
    "MessageDelta",
    "MessageStart",
    "MessageStop",
    "Ping",
    "SignatureDelta",
    "Stop",
    "StopReason",
    "TextBlock",
    "TextDelta",
    "ThinkingBlock",
    "ThinkingDelta",
    "TokenCount",
    "TokenDetails",
    "ToolUseBlock",
    "Usage",
]

StopReason = Literal[
    "end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal", "model_context_window_exceeded"
]  # fmt: skip


class TokenDetails(msgspec.Struct, frozen=True):
    """What the generated tokens were spent on."""

    thinking_tokens: int = 0


class Usage(msgspec.Struct, frozen=True):
    """Tokens. All of the prompt's are those of the first three fields together."""

    input_tokens: int
    """Without those that came from the cache."""
    cache_creation_input_tokens: int
    """Always 0: what is cached costs nothing more here."""
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: TokenDetails


class TextBlock(msgspec.Struct, frozen=True, tag="text"):
    """Text."""

    text: str


class ThinkingBlock(msgspec.Struct, frozen=True, tag="thinking"):
    """Reasoning. The signature shows that it is ours, and is not checked where it comes back."""

    thinking: str
    signature: str


class ToolUseBlock(msgspec.Struct, frozen=True, tag="tool_use"):
    """A tool call."""

    id: str
    name: str
    input: dict[str, Any]


Block = TextBlock | ThinkingBlock | ToolUseBlock


class MessageBody(msgspec.Struct, frozen=True, kw_only=True):
    """A message; in message_start without content and end."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[Block]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: Usage


class MessageStart(msgspec.Struct, frozen=True, tag="message_start"):
    """The first event."""

    message: MessageBody


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """The second one."""


class BlockStart(msgspec.Struct, frozen=True, tag="content_block_start"):
    """A block begins, with no content yet."""

    index: int
    content_block: Block


class TextDelta(msgspec.Struct, frozen=True, tag="text_delta"):
    """More of a text."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, tag="thinking_delta"):
    """More of the reasoning."""

    thinking: str


class SignatureDelta(msgspec.Struct, frozen=True, tag="signature_delta"):
    """The last delta of the reasoning."""

    signature: str


class InputDelta(msgspec.Struct, frozen=True, tag="input_json_delta"):
    """More of a tool call's input, as JSON text."""

    partial_json: str


class BlockDelta(msgspec.Struct, frozen=True, tag="content_block_delta"):
    """More of a block."""

    index: int
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class BlockStop(msgspec.Struct, frozen=True, tag="content_block_stop"):
    """A block is complete."""

    index: int


class Stop(msgspec.Struct, frozen=True):
    """Why a message ended."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, frozen=True, tag="message_delta"):
    """The last event but one."""

    delta: Stop
    usage: Usage


class MessageStop(msgspec.Struct, frozen=True, tag="message_stop"):
    """The last event."""


class TokenCount(msgspec.Struct, frozen=True):
    """How many tokens a prompt has."""

    input_tokens: int


class ErrorObject(msgspec.Struct, frozen=True):
    """What went wrong."""

    type: str
    message: str
    details: dict[str, Any] | UnsetType = UNSET
    """What clients act on."""


class ErrorBody(msgspec.Struct, frozen=True, tag="error"):
    """The body of an error; in a stream its last event."""

    error: ErrorObject
    request_id: str
