"""The response to a request: items of output (common/blocks.py); whole, as one body. stream.py sends it in pieces.

    Delta --> reasoning, text, calls --> the item that grows, or a new one --> ResponseBody

Where the answer shows log-probabilities a message ends last, for its entries are of all that is generated, calls too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from ...model.errors import LmiError
from ...model.events import CallDelta, Delta
from ..base import Response, encode
from ..common.blocks import BlockEncoder, BlockKind, Growing
from ..conversation.carried import carried
from ..openai.logprobs import ShownTokens, TokenLogprob, chat_entries
from ..openai.reply import FINISH_WORDS, error_response
from .bodies import (
    CustomCall,
    FunctionCall,
    IncompleteDetails,
    Item,
    OutputMessage,
    OutputText,
    Reasoning,
    ReasoningText,
    ResponseBody,
    ResponseUsage,
    Stored,
)
from .custom import CustomInput
from .offers import ClientTool

__all__ = ["GrowingItem", "ResponseOptions", "WholeResponse"]


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """What a request asks for in its response."""

    body: ResponseBody
    """As it is before there is any output."""
    logprobs: bool = False
    carries: bool = False
    """Whether reasoning has `encrypted_content`, with which a client that keeps nothing here sends it back."""
    answered: bytes | None = None
    """Where the response is to be kept, the items that it answers, as JSON."""
    offers: Mapping[str, ClientTool] = field(default_factory=dict[str, ClientTool])
    """The tools, by the model's names."""


class GrowingItem(Growing):
    """An item in the making; what it calls is named as the client knows it."""

    id: str = ""
    namespace: str | None = None
    carries: bool = False
    """Whether it has `encrypted_content`, of reasoning."""
    input: CustomInput | None = None
    """What reads a custom tool's input from its arguments."""
    entries: list[TokenLogprob] = msgspec.field(default_factory=list[TokenLogprob])

    def item(self) -> Item:
        """As it is now; while it is in progress it has no content."""
        begun = self.status == "in_progress"
        if self.kind == "call":
            return self._call("" if begun else self.text)
        if self.kind == "reasoning":
            content = [] if begun else [ReasoningText(self.text)]
            encrypted = carried(self.text) if self.carries and not begun else None
            return Reasoning(id=self.id, status=self.status, content=content, encrypted_content=encrypted)
        return OutputMessage(id=self.id, status=self.status, content=[] if begun else [self.output_text()])

    def _call(self, text: str) -> Item:
        namespace = msgspec.UNSET if self.namespace is None else self.namespace
        call_id, name = self.call_id, self.name
        if self.input is not None:
            return CustomCall(
                id=self.id, status=self.status, call_id=call_id, name=name, input=text, namespace=namespace
            )
        return FunctionCall(
            id=self.id, status=self.status, call_id=call_id, name=name, arguments=text, namespace=namespace
        )

    def output_text(self) -> OutputText:
        """Its only part, of a message."""
        return OutputText(self.text, logprobs=self.entries)


@dataclass(slots=True, kw_only=True)
class WholeResponse(BlockEncoder[GrowingItem]):
    """One body. There is one prompt and one choice."""

    options: ResponseOptions
    shown: ShownTokens = field(default_factory=ShownTokens)
    pending: list[TokenLogprob] = field(default_factory=list[TokenLogprob])
    """Entries that no message has yet."""
    kept: tuple[str, bytes, tuple[str, ...]] | None = None
    """At the end of a response that is to be kept: its id, what is kept of it, and the ids of its output."""

    def __post_init__(self) -> None:
        self.text_ends_last = self.options.logprobs

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        if self.options.logprobs:
            self.pending += chat_entries(self.shown.push(delta.tokens))
        return BlockEncoder._take(self, delta, prompt)

    def _made(self, kind: BlockKind, call: CallDelta | None) -> GrowingItem:
        index = len(self.blocks)
        item_id = self._derived_id(str(index))
        if call is None:
            prefix = "rs_" if kind == "reasoning" else "msg_"
            return GrowingItem(kind, index, id=prefix + item_id, carries=self.options.carries)
        call_id, name = call.id or "call_" + self._derived_id(f"call {index}"), call.name or ""
        offer = self.options.offers.get(name)
        if offer is None:
            return GrowingItem(kind, index, call_id, name, id="fc_" + item_id)
        prefix, reader = ("ctc_", CustomInput()) if offer.custom else ("fc_", None)
        return GrowingItem(
            kind, index, call_id, offer.name, id=prefix + item_id, namespace=offer.namespace, input=reader
        )

    def _grew(self, block: GrowingItem, piece: str, records: list[bytes]) -> None:
        if block.input is not None:
            piece = block.input.push(piece)
        if piece:
            block.pieces.append(piece)
            self._send(block, piece, records)

    def _closed(self, block: GrowingItem, records: list[bytes]) -> None:
        if block.kind == "text":
            block.entries += self.pending
            self.pending = []
        if block.input is not None and (rest := block.input.rest()):
            block.pieces.append(rest)
            self._send(block, rest, records)

    def _close(self) -> list[bytes]:
        records: list[bytes] = []
        whole = FINISH_WORDS[self.finishes[0].reason] == "stop"
        self._complete(records, whole=whole)
        self._end_all(records, whole=whole)
        body = self._body()
        encoded = encode(body)
        if self.options.answered is not None:
            stored = encode(Stored(msgspec.Raw(encoded), msgspec.Raw(self.options.answered)))
            self.kept = body.id, stored, tuple(item.id for item in self.blocks)
        return records + self._ended(body, encoded)

    def _complete(self, records: list[bytes], *, whole: bool) -> None:
        """Adds what a response without a call has: a message, unless it was cut off before one."""
        said = bool(self.calls) or any(item.kind == "text" for item in self.blocks)
        if not said and (self.held or whole or not self.blocks):
            item = self._new("text", records)
            if self.held:
                self._grew(item, self.held, records)

    def _body(self) -> ResponseBody:
        """The response, at its end."""
        word = FINISH_WORDS[self.finishes[0].reason]
        cut = None
        if word != "stop":
            cut = IncompleteDetails("content_filter" if word == "content_filter" else "max_output_tokens")
        return msgspec.structs.replace(
            self.options.body,
            status="completed" if cut is None else "incomplete",
            completed_at=int(time.time()) if cut is None else None,
            incomplete_details=cut,
            output=[item.item() for item in self.blocks],
            usage=ResponseUsage.of(
                self.prompt_tokens, self.cached_tokens, self.generated_tokens, self.reasoning_tokens
            ),
        )

    def _refuse(self, error: LmiError) -> Response:
        return error_response(error)

    # Of a response that is sent whole, nothing until its end.

    def _send(self, item: GrowingItem, piece: str, records: list[bytes]) -> None:
        """What is sent of a piece that has been added to an item."""

    def _ended(self, body: ResponseBody, encoded: bytes) -> list[bytes]:
        """What is sent at the end."""
        return [encoded]
