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
from dataclasses import dataclass, field

import msgspec

from ...model.errors import LmiError, OverloadedError
from ...model.events import Delta
from ..openai.bodies import FinishWord
from ..openai.reply import OpenAIEncoder
from .bodies import OutputText, ReasoningText, ResponseBody, ResponseFault
from .events import (
    ArgumentsDelta,
    ArgumentsDone,
    CustomInputDelta,
    CustomInputDone,
    DeltaFrame,
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
from .reply import Growing, WholeResponse

__all__ = ["StreamedResponse"]


@dataclass(slots=True)
class StreamedResponse(WholeResponse):
    """An event for every piece."""

    sequence: int = 0
    """The number of the next event."""
    frames: dict[str, DeltaFrame] = field(default_factory=dict[str, DeltaFrame])
    """Of the items' pieces, by the items' ids; pieces with log-probabilities have none."""
    text: tuple[Growing, DeltaFrame] | None = None
    """The message that grows, where its pieces have no log-probabilities."""

    def _take(self, delta: Delta, choice: int, word: FinishWord | None) -> list[bytes]:
        if self.text is not None and word is None and not delta.reasoning and not delta.calls:
            # Nearly every Delta.
            if not delta.text:
                return []
            item, frame = self.text
            item.pieces.append(delta.text)
            number = self.sequence
            self.sequence = number + 1
            return [frame.record(delta.text, number)]
        return WholeResponse._take(self, delta, choice, word)

    def _event(self, kind: Callable[..., Event], *fields: object) -> bytes:
        """The record of the next event."""
        made = record(kind(*fields, self.sequence))
        self.sequence += 1
        return made

    def _begin(self) -> list[bytes]:
        if self.begun:
            return []
        self.begun = True
        body = self.options.body
        return [self._event(ResponseCreated, body), self._event(ResponseInProgress, body)]

    def _opened(self, item: Growing) -> list[bytes]:
        records = [self._event(ItemAdded, item.index, item.item())]
        if item.kind == "function_call":
            frame = DeltaFrame(ArgumentsDelta(item.id, item.index, "", 0))
        elif item.kind == "custom_tool_call":
            frame = DeltaFrame(CustomInputDelta(item.id, item.index, "", 0))
        elif item.kind == "reasoning":
            records.append(self._event(PartAdded, item.id, item.index, 0, ReasoningText("")))
            frame = DeltaFrame(ReasoningDelta(item.id, item.index, 0, "", 0))
        else:
            records.append(self._event(PartAdded, item.id, item.index, 0, OutputText("")))
            frame = DeltaFrame(TextDelta(item.id, item.index, 0, [], "", 0))
            if not self.options.logprobs:
                self.text = (item, frame)
        self.frames[item.id] = frame
        return records

    def _grow(self, item: Growing, piece: str) -> list[bytes]:
        item.pieces.append(piece)
        if item.kind == "message" and self.options.logprobs:
            entries, self.pending = self.pending, []
            item.entries += entries
            return [self._event(TextDelta, item.id, item.index, 0, entries, piece)]
        number = self.sequence
        self.sequence += 1
        return [self.frames[item.id].record(piece, number)]

    def _ended(self, item: Growing) -> list[bytes]:
        if item.kind == "function_call":
            records = [self._event(ArgumentsDone, item.id, item.index, item.called.name, item.text)]
        elif item.kind == "custom_tool_call":
            records = [self._event(CustomInputDone, item.id, item.index, item.text)]
        elif item.kind == "reasoning":
            text = item.text
            records = [
                self._event(ReasoningDone, item.id, item.index, 0, text),
                self._event(PartDone, item.id, item.index, 0, ReasoningText(text)),
            ]
        else:
            self.text = None
            part = item.output_text()
            records = [
                self._event(TextDone, item.id, item.index, 0, part.text, part.logprobs),
                self._event(PartDone, item.id, item.index, 0, part),
            ]
        return [*records, self._event(ItemDone, item.index, item.item())]

    def _closed(self, body: ResponseBody, encoded: bytes) -> list[bytes]:
        return [self._event(ResponseCompleted if body.status == "completed" else ResponseIncomplete, body)]

    def _fail(self, error: LmiError) -> list[bytes]:
        if not self.begun:
            return OpenAIEncoder._fail(self, error)
        self.finished, self.failure = True, error
        for item in self.items:
            # What there is of it is shown.
            item.status = "incomplete" if item.status == "in_progress" else item.status
        code = "rate_limit_exceeded" if isinstance(error, OverloadedError) else "server_error"
        body = msgspec.structs.replace(
            self.options.body,
            status="failed",
            error=ResponseFault(code, error.message),
            output=[item.item() for item in self.items],
        )
        return [
            self._event(ErrorEvent, error.code, error.message, error.param),
            self._event(ResponseFailed, body),
        ]
