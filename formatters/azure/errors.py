"""The errors of Azure AI Model Inference (docs/decisions.md: Azure errors).

    401, 404, 429    {"error", "message", "status"}
    422              {"code", "detail": {"loc", "value"}, "error", "message", "status"}
    any other        {"code", "error", "message", "param", "status"}    (the document's ContentFilterError)

each with the header `x-ms-error-code`. `error` is the status in words, `message` says what is wrong. Azure's Python
client wants `error` to be an object and finds no code in these bodies: it has the code in the response's header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from ...model.errors import ContextError, LmiError, ParameterError, PayloadError, UnsupportedError
from ..base import Payload, Response, encode

__all__ = ["CODE_HEADER", "OtherError", "PlainError", "UnprocessableError", "error_response", "status_of"]

CODE_HEADER = "x-ms-error-code"

UNPROCESSABLE = 422
CONTENT_FILTER = "ContentFilterError"
"""The kind of error of a prompt that the content filter refuses: a 400, whatever else it is."""

WORDS: Mapping[int, str] = {413: "Content Too Large", 422: "Unprocessable Content", 499: "Client Closed Request"}
"""Where Python's own words differ from one version to the next, or there are none."""


class PlainError(msgspec.Struct, frozen=True):
    """UnauthorizedError, NotFoundError and TooManyRequestsError, which are the same."""

    error: str
    message: str
    status: int


WITHOUT_CODE = (401, 404, 429)


class Detail(msgspec.Struct, frozen=True):
    """Which value, and where in the body: a step a string."""

    loc: list[str]
    value: str


class UnprocessableError(msgspec.Struct, frozen=True):
    """UnprocessableContentError."""

    code: str
    detail: Detail
    error: str
    message: str
    status: int


class OtherError(msgspec.Struct, frozen=True):
    """ContentFilterError, which the document has for all other statuses."""

    code: str
    error: str
    message: str
    param: str
    status: int


def status_of(error: LmiError) -> int:
    """422 for what can be read but not honoured, and for messages that are not understood; else the error's own.

    A body of another form than the document's is a 400, as are a prompt beyond the context and what the content filter
    refuses.
    """
    if error.kind == CONTENT_FILTER or isinstance(error, ContextError):
        return error.status
    if isinstance(error, ParameterError | UnsupportedError):
        return UNPROCESSABLE
    if isinstance(error, PayloadError) and (error.param or "").startswith("messages["):
        return UNPROCESSABLE
    return error.status


def error_response(error: LmiError, payload: Payload | None, headers: Mapping[str, str]) -> Response:
    """The response for `error`; `payload` and `headers` are the request's, for the value that it is about."""
    status = status_of(error)
    words = WORDS.get(status) or HTTPStatus(status).phrase
    body: PlainError | UnprocessableError | OtherError
    if status in WITHOUT_CODE:
        body = PlainError(words, error.message, status)
    elif status == UNPROCESSABLE:
        detail = _detail(error.param or "", payload, headers)
        body = UnprocessableError(error.code, detail, words, error.message, status)
    else:
        body = OtherError(error.code, words, error.message, error.param or "", status)
    return Response(encode(body), status, headers={CODE_HEADER: error.code}, failure=error)


STEP = re.compile(r"[^.\[\]]+")
MAX_VALUE_CHARACTERS = 120
"""How many characters of a value are repeated."""


def _detail(place: str, payload: Payload | None, headers: Mapping[str, str]) -> Detail:
    """Of a place in the body (`messages[0].role`), or of a header."""
    loc: list[str] = STEP.findall(place)
    value: Any = payload if loc else ""
    for step in loc:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            value = headers.get(place.lower(), "")
            break
    try:
        text = value if isinstance(value, str) else encode(value).decode()
    except RecursionError:
        # It could just be read, from a stack that was less deep.
        text = ""
    return Detail(loc, text if len(text) <= MAX_VALUE_CHARACTERS else text[:MAX_VALUE_CHARACTERS] + "...")
