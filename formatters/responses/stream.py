"""The response to a request as a stream of named events, in OpenAI's order.

    response.created, response.in_progress
    for each item   response.output_item.added
                    response.content_part.added             not of calls
                    response.output_text.delta ...          reasoning_text, function_call_arguments,
                                                            custom_tool_call_input
                    response.output_text.done
                    response.content_part.done
                    response.output_item.done
    response.completed | response.incomplete | error, response.failed

Each is numbered. An error before the first is a body with its status, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from ...model.errors import LmiError, OverloadedError
from ...model.events import Delta
from ..base import encode
from ..common.encoder import around
from .bodies import OutputText, ReasoningText, ResponseBody, ResponseFault
from .events import (
    NUMBERED,
    ArgumentsDelta,
    ArgumentsDone,
    CustomInputDelta,
    CustomInputDone,
    ErrorEvent,
    Event,
    ItemAdded,
    ItemDone,
    PartAdded,
    PartDone,
    ReasoningDelta,
    ReasoningDone,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    TextDelta,
    TextDone,
    record,
)
from .reply import GrowingItem, WholeResponse

__all__ = ["StreamedResponse"]


@dataclass(slots=True, kw_only=True)
class StreamedResponse(WholeResponse):
    """An event for every piece."""

    sequence: int = 0
    """The number of the next event."""

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        item, text = self.text, delta.text
        if item and text and item.head and not delta.reasoning and not delta.calls:
            # Nearly every Delta.
            item.pieces.append(text)
            number = self.sequence
            self.sequence = number + 1
            return [NUMBERED % (item.head, encode(text), number)]
        return WholeResponse._take(self, delta, prompt)

    def _event(self, kind: Callable[..., Event], *fields: object) -> bytes:
        """The record of the next event."""
        made = record(kind(*fields, self.sequence))
        self.sequence += 1
        return made

    def _begin(self, records: list[bytes]) -> None:
        self.begun = True
        body = self.options.body
        records += [self._event(ResponseCreated, body), self._event(ResponseInProgress, body)]

    def _opened(self, block: GrowingItem, records: list[bytes]) -> None:
        item_id, index = block.id, block.index
        records.append(self._event(ItemAdded, index, block.item()))
        empty: TextDelta | ReasoningDelta | ArgumentsDelta | CustomInputDelta
        if block.kind == "call":
            empty = (ArgumentsDelta if block.input is None else CustomInputDelta)(item_id, index, "", 0)
        elif block.kind == "reasoning":
            records.append(self._event(PartAdded, item_id, index, 0, ReasoningText("")))
            empty = ReasoningDelta(item_id, index, 0, "", 0)
        else:
            records.append(self._event(PartAdded, item_id, index, 0, OutputText("")))
            if self.options.logprobs:
                return
            empty = TextDelta(item_id, index, 0, [], "", 0)
        block.head, _ = around(record(empty))

    def _send(self, item: GrowingItem, piece: str, records: list[bytes]) -> None:
        if item.head:
            records.append(NUMBERED % (item.head, encode(piece), self.sequence))
            self.sequence += 1
            return
        entries, self.pending = self.pending, []
        item.entries += entries
        records.append(self._event(TextDelta, item.id, item.index, 0, entries, piece))

    def _closed(self, block: GrowingItem, records: list[bytes]) -> None:
        WholeResponse._closed(self, block, records)
        item_id, index, text = block.id, block.index, block.text
        if block.kind == "call" and block.input is None:
            records.append(self._event(ArgumentsDone, item_id, index, block.name, text))
        elif block.kind == "call":
            records.append(self._event(CustomInputDone, item_id, index, text))
        elif block.kind == "reasoning":
            records.append(self._event(ReasoningDone, item_id, index, 0, text))
            records.append(self._event(PartDone, item_id, index, 0, ReasoningText(text)))
        else:
            records.append(self._event(TextDone, item_id, index, 0, text, block.entries))
            records.append(self._event(PartDone, item_id, index, 0, block.output_text()))
        records.append(self._event(ItemDone, index, block.item()))

    def _ended(self, body: ResponseBody, encoded: bytes) -> list[bytes]:
        return [self._event(ResponseCompleted if body.status == "completed" else ResponseIncomplete, body)]

    def _break_off(self, error: LmiError) -> list[bytes]:
        for item in self.blocks:
            # What there is of it is shown.
            item.status = "incomplete" if item.status == "in_progress" else item.status
        code = "rate_limit_exceeded" if isinstance(error, OverloadedError) else "server_error"
        body = msgspec.structs.replace(
            self.options.body,
            status="failed",
            error=ResponseFault(code, error.message),
            output=[item.item() for item in self.blocks],
        )
        return [
            self._event(ErrorEvent, error.code, error.message, error.param),
            self._event(ResponseFailed, body),
        ]
