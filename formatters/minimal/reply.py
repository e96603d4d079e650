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

from ...model.errors import LmiError
from ...model.events import Delta
from ..base import JSON, SSE, Response, encode, event_record, line_record
from ..common.encoder import Encoder
from ..openai.bodies import error_body
from ..openai.reply import Identity

__all__ = [
    "EVENTS",
    "LINES",
    "WHOLE",
    "Body",
    "Chunk",
    "ErrorBody",
    "ErrorLine",
    "ErrorObject",
    "Form",
    "MinimalEncoder",
    "refusal",
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


def error_records(error: LmiError, form: Form) -> list[bytes]:
    """The records of an error (docs/decisions.md: Minimal chat errors)."""
    told = error_body(error).error
    detail = ErrorObject(told.message, told.type, told.code)
    if form == EVENTS:
        return [b"event: error\n" + event_record(detail), END]
    return [line_record(ErrorLine(detail)) if form == LINES else encode(ErrorBody(detail))]


def refusal(error: LmiError, form: Form) -> Response:
    """An error before the first record. A browser's EventSource reads no answer but a 200."""
    status = 200 if form == EVENTS else error.status
    body = b"".join(error_records(error, form))
    return Response(body, status, CONTENT_TYPES[form], _headers(form), failure=error)


def _headers(form: Form) -> Mapping[str, str]:
    return {} if form == WHOLE else STREAM_HEADERS


@dataclass(slots=True)
class MinimalEncoder(Encoder):
    """The answer in one of the forms."""

    identity: Identity
    form: Form
    texts: list[str] = field(default_factory=list[str])
    """Of a whole answer."""
    index: int = 0
    """How many chunks have been sent."""

    def __post_init__(self) -> None:
        self.content_type = CONTENT_TYPES[self.form]
        self.headers = _headers(self.form)

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        text = delta.text
        if self.form == WHOLE:
            self.texts.append(text)
            return []
        # The last text of lines may be empty, as that of an end of sequence is.
        done = self.form == LINES and delta.finish is not None
        if not text and not done:
            return []
        index = self.index
        self.index, self.begun = index + 1, True
        chunk = encode(Chunk(Message("assistant", text), done, index))
        return [chunk + b"\n" if self.form == LINES else b"data: " + chunk + b"\n\n"]

    def _close(self) -> list[bytes]:
        if self.form != WHOLE:
            return [END] if self.form == EVENTS else []
        identity = self.identity
        message = Message("assistant", "".join(self.texts))
        return [encode(Body(identity.id, identity.model, identity.created, message))]

    def _refuse(self, error: LmiError) -> Response:
        return refusal(error, self.form)

    def _break_off(self, error: LmiError) -> list[bytes]:
        return error_records(error, self.form)
