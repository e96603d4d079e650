"""Anthropic's answers, whole and streamed.

    whole     one JSON body
    stream    message_start  ping  {content_block_start  content_block_delta*  content_block_stop}*
              message_delta  message_stop

A content block is reasoning, text or a tool call. One ends where another begins; white space alone between two others
is no block, as Anthropic's API has no blank texts either. An error before the first event is a JSON body with its
status, later it is the last event.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ...model.errors import LmiError
from ...model.events import CallDelta, Delta, Event, Finish, Started
from ..base import JSON, SSE, encode, named_record
from ..common.encoder import EncoderState
from ..common.finish import aborted
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
NOT_STARTED = Started(0)


def message_encoder(model: str, request_id: str, max_tokens: int, *, streams: bool) -> MessageEncoder:
    """The reply for a request for at most `max_tokens`; for 0 it has no content."""
    whole, streamed = (WholeMessage, StreamMessage) if max_tokens else (WholePrompt, StreamedPrompt)
    kind, content_type = (streamed, SSE) if streams else (whole, JSON)
    return kind(
        model=model,
        request_id=request_id,
        max_tokens=max_tokens,
        content_type=content_type,
        headers=id_header(request_id),
    )


def call_id(given: str | None) -> str:
    """A tool call's id for the client; without its prefix it is the engine's again, which templates may look at."""
    return CALL_PREFIX + (given.removeprefix(ENGINES_PREFIX) if given else uuid.uuid4().hex)


@dataclass(slots=True, kw_only=True)
class MessageEncoder(EncoderState):
    """A reply, but for what it makes of the text."""

    model: str
    request_id: str
    max_tokens: int
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Random; the message's id and the signature of its reasoning."""
    started: Started = NOT_STARTED
    begun: bool = False
    """Whether a record has been returned."""

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """The records that `event` completes."""
        if isinstance(event, Delta):
            records = self._take(event)
            finish = event.finish
            if finish is None:
                return records
            if finish.reason == "abort":
                return records + self._fail(aborted())
            self.finished = True
            return records + self._close(finish)
        if isinstance(event, Started):
            self.started = event
            return []
        return self._fail(event.error)

    def _take(self, delta: Delta) -> list[bytes]:
        """What is new."""
        raise NotImplementedError

    def _close(self, finish: Finish) -> list[bytes]:
        """The records after the end."""
        raise NotImplementedError

    def _fail(self, error: LmiError) -> list[bytes]:
        self.finished, self.failure = True, error
        if self.begun:
            return [named_record(b"error", error_body(error, self.request_id))]
        answer = error_response(error, self.request_id)
        self.status, self.content_type = answer.status, answer.content_type
        return [answer.body]

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
        cached = self.started.cached_tokens
        generated, reasoning = (finish.generated_tokens, finish.reasoning_tokens) if finish else (0, 0)
        return Usage(self.started.prompt_tokens - cached, 0, cached, generated, TokenDetails(reasoning))

    def _stop(self, finish: Finish, *, called: bool) -> Stop:
        """Why the message ended: a tool call takes precedence over the model's own end, and over nothing else."""
        if finish.reason == "length":
            within = finish.generated_tokens < self.max_tokens
            return Stop("model_context_window_exceeded" if within else "max_tokens", None)
        if finish.reason == "content_filter":
            return Stop("refusal", None)
        if finish.reason == "stop" and isinstance(finish.stop, str):
            return Stop("stop_sequence", finish.stop)
        return Stop("tool_use" if called else "end_turn", None)


@dataclass(slots=True)
class _Call:
    """A tool call in the making."""

    id: str
    name: str
    texts: list[str] = field(default_factory=list[str])

    def block(self) -> ToolUseBlock:
        """It as the answer has it. What was cut off, or is no object, has no place there: then the input is empty."""
        given: Any = None
        with suppress(msgspec.DecodeError, RecursionError):
            given = msgspec.json.decode("".join(self.texts))
        return ToolUseBlock(self.id, self.name, given if isinstance(given, dict) else {})


@dataclass(slots=True, kw_only=True)
class WholeMessage(MessageEncoder):
    """One body."""

    texts: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: dict[int, _Call] = field(default_factory=dict[int, _Call])

    def _take(self, delta: Delta) -> list[bytes]:
        self.texts.append(delta.text)
        self.reasoning.append(delta.reasoning)
        for call in delta.calls:
            if call.index not in self.calls:
                self.calls[call.index] = _Call(call_id(call.id), call.name or "")
            self.calls[call.index].texts.append(call.arguments)
        return []

    def _close(self, finish: Finish) -> list[bytes]:
        content: list[Block] = []
        if reasoning := "".join(self.reasoning):
            content.append(ThinkingBlock(reasoning, self.key))
        text = "".join(self.texts)
        if text and not text.isspace():
            content.append(TextBlock(text))
        content += [call.block() for _, call in sorted(self.calls.items())]
        stop = self._stop(finish, called=bool(self.calls))
        return [encode(self._message(content, stop, self._usage(finish)))]


TEXT, THINKING, CALL = "text", "thinking", "tool_use"
PING = named_record(b"ping", Ping())
MESSAGE_STOP = named_record(b"message_stop", MessageStop())


@dataclass(slots=True, kw_only=True)
class StreamMessage(MessageEncoder):
    """Events of blocks, one after the other: a tool's arguments do not go on once the next block has begun."""

    kind: str = ""
    """Of the open block; empty: none is."""
    index: int = 0
    """Of the open block, or of the next one."""
    head: bytes = b""
    tail: bytes = b""
    """The bytes around what is new, encoded once a block."""
    call: int = -1
    """Which call the open block is."""
    called: bool = False
    blank: str = ""
    """White space that a text may begin with."""

    def _take(self, delta: Delta) -> list[bytes]:
        text = delta.text
        if self.kind == TEXT and text and not delta.reasoning and not delta.calls:
            # Nearly every Delta.
            return [self.head + encode(text) + self.tail]
        records: list[bytes] = []
        if not self.begun:
            self.begun = True
            start = MessageStart(self._message([], None, self._usage()))
            records += [named_record(b"message_start", start), PING]
        if delta.reasoning:
            self._thinking(delta.reasoning, records)
        calls = delta.calls
        if text:
            # What an open call has to add came before the text.
            while self.kind == CALL and calls and calls[0].index == self.call:
                self._call(calls[0], records)
                calls = calls[1:]
            self._text(text, records)
        for call in calls:
            self._call(call, records)
        return records

    def _thinking(self, new: str, records: list[bytes]) -> None:
        if self.kind != THINKING:
            self._open(THINKING, ThinkingBlock("", ""), ThinkingDelta(""), records)
        records.append(self.head + encode(new) + self.tail)

    def _text(self, new: str, records: list[bytes]) -> None:
        if self.kind != TEXT:
            new = self.blank + new
            if new.isspace():
                self.blank = new
                return
            self._open(TEXT, TextBlock(""), TextDelta(""), records)
        records.append(self.head + encode(new) + self.tail)

    def _call(self, new: CallDelta, records: list[bytes]) -> None:
        if self.kind != CALL or self.call != new.index:
            block = ToolUseBlock(call_id(new.id), new.name or "", {})
            self._open(CALL, block, InputDelta(""), records)
            self.call, self.called = new.index, True
        if new.arguments:
            records.append(self.head + encode(new.arguments) + self.tail)

    def _open(
        self, kind: str, block: Block, empty: TextDelta | ThinkingDelta | InputDelta, records: list[bytes]
    ) -> None:
        """Begins a block whose deltas are like `empty`."""
        self._shut(records)
        self.kind, self.blank = kind, ""
        records.append(named_record(b"content_block_start", BlockStart(self.index, block)))
        frame = named_record(b"content_block_delta", BlockDelta(self.index, empty))
        self.head, _, self.tail = frame.rpartition(b'""')

    def _shut(self, records: list[bytes]) -> None:
        """Ends the open block."""
        if not self.kind:
            return
        if self.kind == THINKING:
            signature = BlockDelta(self.index, SignatureDelta(self.key))
            records.append(named_record(b"content_block_delta", signature))
        records.append(named_record(b"content_block_stop", BlockStop(self.index)))
        self.kind = ""
        self.index += 1

    def _close(self, finish: Finish) -> list[bytes]:
        records: list[bytes] = []
        self._shut(records)
        ended = MessageDelta(self._stop(finish, called=self.called), self._usage(finish))
        return [*records, named_record(b"message_delta", ended), MESSAGE_STOP]


class _Prompt(MessageEncoder):
    """The reply to a prompt alone: the token that engines generate at least is left out."""

    __slots__ = ()

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """The records that `event` completes."""
        if isinstance(event, Delta):
            finish = event.finish
            if finish is not None and finish.reason != "abort":
                finish = Finish("length")
            event = Delta(event.index, "", finish=finish)
        return MessageEncoder.feed(self, event, prompt)


class WholePrompt(_Prompt, WholeMessage):
    """One body."""

    __slots__ = ()


class StreamedPrompt(_Prompt, StreamMessage):
    """The events but for blocks."""

    __slots__ = ()
