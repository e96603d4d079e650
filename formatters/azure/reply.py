"""The answers of Azure AI Model Inference (docs/decisions.md: Azure responses).

A stream's chunks are OpenAI's. A whole answer has the document's keys, and beyond them only what was asked for:
`logprobs` with the extra parameter of that name, `reasoning` of a model with a reasoning parser.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from ..base import SSE, encode
from ..common.encoder import RenderError
from ..openai.bodies import FinishWord, ToolCall
from ..openai.chat_reply import StreamChat, WholeChat
from ..openai.logprobs import ChatLogprobs
from ..openai.reply import ChatOptions, Identity, OpenAIEncoder

__all__ = ["Body", "azure_encoder"]


class Message(msgspec.Struct, frozen=True):
    """ChatCompletionResponseMessage."""

    role: str
    content: str
    tool_calls: list[ToolCall] | UnsetType
    reasoning: str | UnsetType
    reasoning_content: str | UnsetType


class Choice(msgspec.Struct, frozen=True):
    """Choices."""

    index: int
    finish_reason: FinishWord
    message: Message
    logprobs: ChatLogprobs | UnsetType


class Usage(msgspec.Struct, frozen=True):
    """CompletionUsage, in the order of the document's sample."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """CreateChatCompletionResponse, in the order of the document's sample."""

    id: str
    model: str
    choices: list[Choice]
    created: int
    object: str = "chat.completion"
    usage: Usage


def azure_encoder(model: str, shape: ChatOptions, render_error: RenderError, *, streams: bool) -> OpenAIEncoder:
    """The reply for a request of this shape."""
    identity = Identity.new("chatcmpl-", model)
    if streams:
        return StreamChat(identity, n=shape.n, content_type=SSE, shape=shape, refuse=render_error)
    return AzureWhole(identity, n=shape.n, shape=shape, refuse=render_error)


@dataclass(slots=True)
class AzureWhole(WholeChat):
    """One body."""

    def _close(self) -> list[bytes]:
        identity = self.identity
        usage = self.usage()
        body = Body(
            id=identity.id,
            model=identity.model,
            choices=[self._azure_choice(index) for index in sorted(self.choices)],
            created=identity.created,
            usage=Usage(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens),
        )
        return [encode(body)]

    def _azure_choice(self, index: int) -> Choice:
        choice = self._choice(index, self.choices[index])
        message = choice.message
        return Choice(
            index,
            choice.finish_reason,
            # The document has a string only: "" where OpenAI's is null, beside calls.
            Message(
                message.role,
                message.content or "",
                message.tool_calls or UNSET,
                message.reasoning,
                message.reasoning_content,
            ),
            UNSET if choice.logprobs is None else choice.logprobs,
        )
