"""The response to a request: items of output, grown as events come; whole, as one body. stream.py sends it in pieces.

    Delta --> reasoning, text, calls --> the item that grows, or a new one --> ResponseBody

White space before a text is held until there is text: some models have line breaks around calls. Where the answer
shows log-probabilities a message ends last, for its entries are of all that is generated, calls too.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from ...model.events import CallDelta, Delta
from ..base import encode
from ..openai.bodies import FinishWord, TokenLogprob
from ..openai.logprobs import ShownTokens, chat_entries
from ..openai.reply import FINISH_WORDS, OpenAIEncoder
from .bodies import (
    CustomCall,
    FunctionCall,
    IncompleteDetails,
    Item,
    ItemStatus,
    OutputMessage,
    OutputText,
    Reasoning,
    ReasoningText,
    ResponseBody,
    ResponseUsage,
)
from .custom import CustomInput
from .offers import ClientTool
from .stored import Keeper

__all__ = ["Growing", "ResponseOptions", "WholeResponse"]


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """What a request asks for in its response."""

    body: ResponseBody
    """As it is before there is any output."""
    logprobs: bool = False
    keeper: Keeper | None = None
    offers: Mapping[str, ClientTool] = field(default_factory=dict[str, ClientTool])
    """The tools, by the model's names."""


Kind = Literal["reasoning", "message", "function_call", "custom_tool_call"]


@dataclass(frozen=True, slots=True)
class Called:
    """The tool that an item calls, as the client knows it."""

    id: str = ""
    """Of the call."""
    name: str = ""
    namespace: str | None = None


@dataclass(slots=True)
class Growing:
    """An item in the making."""

    kind: Kind
    id: str
    index: int
    """Its place in the output."""
    called: Called = Called()
    input: CustomInput | None = None
    """What reads a custom tool's input from its arguments."""
    pieces: list[str] = field(default_factory=list[str])
    """Of its text, or of its arguments."""
    entries: list[TokenLogprob] = field(default_factory=list[TokenLogprob])
    status: ItemStatus = "in_progress"

    @property
    def text(self) -> str:
        """All of it so far."""
        return "".join(self.pieces)

    def item(self) -> Item:
        """As it is now; while it is in progress it has no content."""
        begun = self.status == "in_progress"
        if self.kind in ("function_call", "custom_tool_call"):
            return self._call("" if begun else self.text)
        if self.kind == "reasoning":
            content = [] if begun else [ReasoningText(self.text)]
            return Reasoning(id=self.id, status=self.status, content=content)
        return OutputMessage(id=self.id, status=self.status, content=[] if begun else [self.output_text()])

    def _call(self, text: str) -> Item:
        namespace = msgspec.UNSET if self.called.namespace is None else self.called.namespace
        call_id, name = self.called.id, self.called.name
        if self.kind == "custom_tool_call":
            return CustomCall(
                id=self.id, status=self.status, call_id=call_id, name=name, input=text, namespace=namespace
            )
        return FunctionCall(
            id=self.id, status=self.status, call_id=call_id, name=name, arguments=text, namespace=namespace
        )

    def output_text(self) -> OutputText:
        """Its only part, of a message."""
        return OutputText(self.text, logprobs=self.entries)


PREFIXES = {"reasoning": "rs_", "message": "msg_", "function_call": "fc_", "custom_tool_call": "ctc_"}


@dataclass(slots=True)
class WholeResponse(OpenAIEncoder):
    """One body. There is one prompt and one choice."""

    options: ResponseOptions = field(kw_only=True)
    items: list[Growing] = field(default_factory=list[Growing])
    calls: dict[int, Growing] = field(default_factory=dict[int, Growing])
    """By the engine's index of the call."""
    held: str = ""
    """White space before a text."""
    shown: ShownTokens = field(default_factory=ShownTokens)
    pending: list[TokenLogprob] = field(default_factory=list[TokenLogprob])
    """Entries that no message has yet."""

    def _take(self, delta: Delta, choice: int, word: FinishWord | None) -> list[bytes]:
        records = self._begin()
        if self.options.logprobs:
            self.pending += chat_entries(self.shown.push(delta.tokens))
        if delta.reasoning:
            item = self._last("reasoning")
            if item is None:
                item = self._new("reasoning", records)
            records += self._grow(item, delta.reasoning)
        calls = delta.calls
        if delta.text:
            # What an open call has to add came before the text.
            while calls and calls[0].index in self.calls:
                self._call(calls[0], records)
                calls = calls[1:]
            self._text(delta.text, records)
        for call in calls:
            self._call(call, records)
        if word is not None:
            self._end(word, records)
        return records

    def _text(self, text: str, records: list[bytes]) -> None:
        item = self._last("message")
        if item is None:
            text = self.held + text
            if text.isspace():
                self.held = text
                return
            self.held = ""
            item = self._new("message", records)
        records += self._grow(item, text)

    def _call(self, call: CallDelta, records: list[bytes]) -> None:
        item = self.calls.get(call.index)
        if item is None:
            item = self.calls[call.index] = self._called(call, records)
        piece = call.arguments if item.input is None else item.input.push(call.arguments)
        if piece:
            records += self._grow(item, piece)

    def _called(self, call: CallDelta, records: list[bytes]) -> Growing:
        """A further item, of a call."""
        call_id, name = call.id or "call_" + uuid.uuid4().hex, call.name or ""
        offer = self.options.offers.get(name)
        if offer is None:
            return self._new("function_call", records, Called(call_id, name))
        called = Called(call_id, offer.name, offer.namespace)
        if not offer.custom:
            return self._new("function_call", records, called)
        item = self._new("custom_tool_call", records, called)
        item.input = CustomInput()
        return item

    def _last(self, kind: str) -> Growing | None:
        """The item of this kind that still grows."""
        for item in reversed(self.items):
            if item.status == "in_progress" and item.kind == kind:
                return item
        return None

    def _new(self, kind: Kind, records: list[bytes], called: Called = Called()) -> Growing:
        """A further item, after the end of the one before it."""
        for earlier in self.items:
            if earlier.kind != "message" or not self.options.logprobs:
                self._finish(earlier, "completed", records)
        item = Growing(kind, PREFIXES[kind] + uuid.uuid4().hex, len(self.items), called)
        self.items.append(item)
        records += self._opened(item)
        return item

    def _end(self, word: FinishWord, records: list[bytes]) -> None:
        """The end of all items. A response without a call has a message, unless it was cut off before one."""
        whole = word == "stop"
        said = bool(self.calls) or any(item.kind == "message" for item in self.items)
        if not said and (self.held or whole or not self.items):
            item = self._new("message", records)
            if self.held:
                records += self._grow(item, self.held)
        last = self.items[-1]
        for item in self.items:
            self._finish(item, "completed" if whole or item is not last else "incomplete", records)

    def _finish(self, item: Growing, status: ItemStatus, records: list[bytes]) -> None:
        """The end of an item that has not ended yet."""
        if item.status != "in_progress":
            return
        if item.kind == "message":
            item.entries += self.pending
            self.pending = []
        if item.input is not None and (rest := item.input.rest()):
            records += self._grow(item, rest)
        item.status = status
        records += self._ended(item)

    def _close(self) -> list[bytes]:
        body = self._body()
        encoded = encode(body)
        if self.options.keeper is not None:
            self.options.keeper.keep(body, encoded)
        return self._closed(body, encoded)

    def _body(self) -> ResponseBody:
        """The response, at its end."""
        reason = self.finishes[0].reason
        word = FINISH_WORDS[reason]
        cut = None
        if word != "stop":
            cut = IncompleteDetails("content_filter" if word == "content_filter" else "max_output_tokens")
        return msgspec.structs.replace(
            self.options.body,
            status="completed" if cut is None else "incomplete",
            completed_at=int(time.time()) if cut is None else None,
            incomplete_details=cut,
            output=[item.item() for item in self.items],
            usage=self._usage(),
        )

    def _usage(self) -> ResponseUsage:
        usage = self.usage()
        return ResponseUsage.of(
            usage.prompt_tokens,
            usage.prompt_tokens_details.cached_tokens,
            usage.completion_tokens,
            usage.completion_tokens_details.reasoning_tokens,
        )

    # What is sent of it; of one that is sent whole, nothing until its end.

    def _begin(self) -> list[bytes]:
        """What is sent before anything else, once."""
        return []

    def _opened(self, item: Growing) -> list[bytes]:
        """What is sent of a new item."""
        return []

    def _grow(self, item: Growing, piece: str) -> list[bytes]:
        """Adds to an item, and what is sent of that."""
        item.pieces.append(piece)
        return []

    def _ended(self, item: Growing) -> list[bytes]:
        """What is sent of an item that has ended."""
        return []

    def _closed(self, body: ResponseBody, encoded: bytes) -> list[bytes]:
        """What is sent at the end."""
        return [encoded]
