"""Anthropic's answers, whole and streamed.

    whole     one JSON body
    stream    message_start  ping  {content_block_start  content_block_delta*  content_block_stop}*
              message_delta  message_stop

A content block is reasoning, text or a tool call (common/blocks.py), the same in both forms; Anthropic's API has no
blank texts. Reasoning that is not to be shown (`display: "omitted"`) is a block without text, whose signature carries
it (conversation/carried.py). An error
before the first event is a JSON body with its status, later it is the last event.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...model.errors import LmiError
from ...model.events import CallDelta, Delta, Event, Finish
from ..base import JSON, SSE, Response, encode, named_record
from ..common.blocks import BlockEncoder, BlockKind, Growing
from ..common.encoder import around
from ..conversation.carried import carried
from .blocks import CALL_PREFIX
from .bodies import (
    Block,
    BlockDelta,
    BlockStart,
    BlockStop,
    InputDelta,
    MessageBody,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    SignatureDelta,
    Stop,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    TokenDetails,
    ToolUseBlock,
    Usage,
)
from .errors import error_body, error_response, id_header

__all__ = ["MessageEncoder", "StreamMessage", "WholeMessage", "message_encoder"]

ENGINES_PREFIX = "chatcmpl-tool-"
"""How vLLM's ids of tool calls begin."""


def message_encoder(
    model: str, request_id: str, max_tokens: int, *, streams: bool, shown: bool = True
) -> MessageEncoder:
    """The reply for a request for at most `max_tokens`; for 0 it has no content. `shown`: reasoning has its text."""
    kind, content_type = (StreamMessage, SSE) if streams else (WholeMessage, JSON)
    return kind(
        model=model,
        request_id=request_id,
        max_tokens=max_tokens,
        # Of a prompt alone the token that engines generate at least is left out.
        silent=not max_tokens,
        shown=shown,
        content_type=content_type,
        headers=id_header(request_id),
    )


@dataclass(slots=True, kw_only=True)
class MessageEncoder(BlockEncoder[Growing]):
    """A reply, but for what it makes of its blocks. Its `key` is the message's id and the signature of reasoning."""

    model: str
    request_id: str
    max_tokens: int
    shown: bool = True
    """Whether reasoning has its text."""

    def _made(self, kind: BlockKind, call: CallDelta | None) -> Growing:
        index, self.held = len(self.blocks), ""
        if call is None:
            return Growing(kind, index)
        # Without its prefix the id is the engine's again, which templates may look at.
        given = call.id.removeprefix(ENGINES_PREFIX) if call.id else self._derived_id(str(index))
        return Growing(kind, index, CALL_PREFIX + given, call.name or "")

    def _refuse(self, error: LmiError) -> Response:
        return error_response(error, self.request_id)

    def _finish(self) -> Finish:
        return Finish("length") if self.silent else self.finishes[0]

    def _message(self, content: list[Block], stop: Stop | None, usage: Usage) -> MessageBody:
        return MessageBody(
            id=f"msg_{self.key}",
            model=self.model,
            content=content,
            stop_reason=stop.stop_reason if stop else None,
            stop_sequence=stop.stop_sequence if stop else None,
            usage=usage,
        )

    def _usage(self, finish: Finish | None = None) -> Usage:
        generated, reasoning = (finish.generated_tokens, finish.reasoning_tokens) if finish else (0, 0)
        cached = self.cached_tokens
        return Usage(self.prompt_tokens - cached, 0, cached, generated, TokenDetails(reasoning))

    def _stop(self, finish: Finish) -> Stop:
        """Why the message ended: a tool call takes precedence over the model's own end, and over nothing else."""
        if finish.reason == "length":
            within = finish.generated_tokens < self.max_tokens
            return Stop("model_context_window_exceeded" if within else "max_tokens", None)
        if finish.reason == "content_filter":
            return Stop("refusal", None)
        if finish.reason == "stop" and isinstance(finish.stop, str):
            return Stop("stop_sequence", finish.stop)
        return Stop("tool_use" if self.calls else "end_turn", None)


@dataclass(slots=True, kw_only=True)
class WholeMessage(MessageEncoder):
    """One body."""

    def _close(self) -> list[bytes]:
        finish, content = self._finish(), [self._block(block) for block in self.blocks]
        return [encode(self._message(content, self._stop(finish), self._usage(finish)))]

    def _block(self, block: Growing) -> Block:
        if block.kind == "text":
            return TextBlock(block.text)
        if block.kind == "reasoning":
            return ThinkingBlock(block.text, self.key) if self.shown else ThinkingBlock("", carried(block.text))
        return ToolUseBlock(block.call_id, block.name, block.arguments)


PING = named_record(b"ping", Ping())
MESSAGE_STOP = named_record(b"message_stop", MessageStop())


@dataclass(slots=True, kw_only=True)
class StreamMessage(MessageEncoder):
    """Events of blocks, one after the other."""

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """The records that `event` completes."""
        block = self.text
        if block and isinstance(event, Delta):
            text = event.text
            if text and event.finish is None and not event.reasoning and not event.calls:
                # Nearly every event.
                return [block.head + encode(text) + block.tail]
        return MessageEncoder.feed(self, event, prompt)

    def _begin(self, records: list[bytes]) -> None:
        self.begun = True
        records += [named_record(b"message_start", MessageStart(self._message([], None, self._usage()))), PING]

    def _opened(self, block: Growing, records: list[bytes]) -> None:
        start: Block
        empty: TextDelta | ThinkingDelta | InputDelta
        if block.kind == "text":
            start, empty = TextBlock(""), TextDelta("")
        elif block.kind == "reasoning":
            start, empty = ThinkingBlock("", ""), ThinkingDelta("")
        else:
            start, empty = ToolUseBlock(block.call_id, block.name, {}), InputDelta("")
        records.append(named_record(b"content_block_start", BlockStart(block.index, start)))
        block.head, block.tail = around(named_record(b"content_block_delta", BlockDelta(block.index, empty)))

    def _grew(self, block: Growing, piece: str, records: list[bytes]) -> None:
        if block.kind == "reasoning" and not self.shown:
            block.pieces.append(piece)
        else:
            records.append(block.head + encode(piece) + block.tail)

    def _closed(self, block: Growing, records: list[bytes]) -> None:
        if block.kind == "reasoning":
            signature = BlockDelta(block.index, SignatureDelta(self.key if self.shown else carried(block.text)))
            records.append(named_record(b"content_block_delta", signature))
        records.append(named_record(b"content_block_stop", BlockStop(block.index)))

    def _close(self) -> list[bytes]:
        records: list[bytes] = []
        self._end_all(records)
        finish = self._finish()
        ended = MessageDelta(self._stop(finish), self._usage(finish))
        return [*records, named_record(b"message_delta", ended), MESSAGE_STOP]

    def _break_off(self, error: LmiError) -> list[bytes]:
        return [named_record(b"error", error_body(error, self.request_id))]
