"""The answers of the minimal chat API, in its three forms (docs/decisions.md: Minimal chat streams).

    WHOLE     one JSON body
    LINES     {chunk} LF  {chunk} LF ...   the last one has `done: true`
    EVENTS    data: {chunk}   data: {chunk} ...   data: [END]

A chunk has what one Delta brought; chunks are counted from 0. Reasoning is not sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from ...model.errors import GenerationError, LmiError
from ...model.events import Delta, Event, Started
from ..base import JSON, SSE, encode, event_record, line_record
from ..openai.bodies import error_body
from ..openai.reply import Identity

__all__ = [
    "EVENTS",
    "LINES",
    "STREAM_HEADERS",
    "WHOLE",
    "Body",
    "Chunk",
    "ErrorBody",
    "ErrorLine",
    "ErrorObject",
    "Form",
    "MinimalEncoder",
    "error_records",
    "status_of",
]

Form = Literal["whole", "lines", "events"]
WHOLE: Form = "whole"
LINES: Form = "lines"
EVENTS: Form = "events"

CONTENT_TYPES: Mapping[Form, str] = {WHOLE: JSON, LINES: JSON, EVENTS: SSE}
STREAM_HEADERS: Mapping[str, str] = {"Cache-Control": "no-cache"}
"""The minimal chat document, Response Headers; those of the connection are the host's."""

END = b"data: [END]\n\n"


class Message(msgspec.Struct, frozen=True, gc=False):
    """A text of the assistant's."""

    role: str
    content: str


class Body(msgspec.Struct, frozen=True):
    """The document's Regular (Non-Streaming) Response."""

    id: str
    model: str
    created: int
    message: Message
    done: bool = True


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """The document's JSON Streaming Response Format; the same in events."""

    message: Message
    done: bool
    index: int


class ErrorObject(msgspec.Struct, frozen=True):
    """What all forms of an error hold."""

    message: str
    type: str
    code: str


class ErrorBody(msgspec.Struct, frozen=True):
    """The document's Regular (Non-Streaming) Error Responses."""

    error: ErrorObject


class ErrorLine(msgspec.Struct, frozen=True):
    """The document's JSON Streaming Error Responses."""

    error: ErrorObject
    done: bool = True


def status_of(error: LmiError, form: Form) -> int:
    """The status of an error before the first record. A browser's EventSource reads no answer but a 200."""
    return 200 if form == EVENTS else error.status


def error_records(error: LmiError, form: Form) -> list[bytes]:
    """The records of an error (docs/decisions.md: Minimal chat errors)."""
    told = error_body(error).error
    detail = ErrorObject(told.message, told.type, told.code)
    if form == EVENTS:
        return [b"event: error\n" + event_record(detail), END]
    return [line_record(ErrorLine(detail)) if form == LINES else encode(ErrorBody(detail))]


@dataclass(slots=True)
class MinimalEncoder:
    """The answer in one of the forms."""

    identity: Identity
    form: Form
    status: int = 200
    failure: LmiError | None = None
    finished: bool = False
    texts: list[str] = field(default_factory=list[str])
    """Of a whole answer."""
    index: int = 0
    """How many chunks have been sent."""

    @property
    def content_type(self) -> str:
        """By the form, errors included."""
        return CONTENT_TYPES[self.form]

    @property
    def headers(self) -> Mapping[str, str]:
        """By the form."""
        return {} if self.form == WHOLE else STREAM_HEADERS

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """The records that `event` completes."""
        if isinstance(event, Delta):
            finish = event.finish
            if finish is None:
                return self._take(event.text)
            if finish.reason == "abort":
                records = self._take(event.text)
                return records + self._fail(GenerationError("the generation was cut off before its end"))
            self.finished = True
            return self._end(event.text)
        if isinstance(event, Started):
            return []
        return self._fail(event.error)

    def _take(self, text: str) -> list[bytes]:
        if self.form == WHOLE:
            self.texts.append(text)
        elif text:
            return [self._chunk(text, done=False)]
        return []

    def _end(self, text: str) -> list[bytes]:
        """The last text there is; it may be empty, as that of an end of sequence is."""
        if self.form == LINES:
            return [self._chunk(text, done=True)]
        records = self._take(text)
        if self.form == EVENTS:
            return [*records, END]
        identity = self.identity
        message = Message("assistant", "".join(self.texts))
        return [encode(Body(identity.id, identity.model, identity.created, message))]

    def _chunk(self, text: str, *, done: bool) -> bytes:
        chunk = Chunk(Message("assistant", text), done, self.index)
        self.index += 1
        return event_record(chunk) if self.form == EVENTS else line_record(chunk)

    def _fail(self, error: LmiError) -> list[bytes]:
        self.finished, self.failure = True, error
        if not self.index:
            self.status = status_of(error, self.form)
        return error_records(error, self.form)
