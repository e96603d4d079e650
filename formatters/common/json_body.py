"""A body as a JSON object, or what is wrong with it, its Content-Type included (RFC 9110, 8.3)."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import cast

import msgspec

from ...model.errors import MediaTypeError, PayloadError, RequestError
from ..base import Payload, Request
from ..records import JSON_LINES
from .body_size import CONTAINERS, check_body
from .json_faults import why_unreadable

__all__ = [
    "FORM",
    "KIND",
    "TOO_DEEP",
    "check_content_type",
    "control_of",
    "ends_of",
    "holds_file",
    "names_in",
    "read_json",
]

_decode = msgspec.json.Decoder().decode


def holds_file(headers: Mapping[str, str]) -> bool:
    """Whether the body is a form or a file (transcription/file_body.py), and not JSON."""
    return headers.get("content-type", "").lower().startswith((FORM, "audio/", "video/"))


FORM = "multipart/form-data"


def check_content_type(request: Request) -> None:
    """JSON by name, octets, or nothing said, in UTF-8. Raises MediaTypeError for anything else."""
    given, _, parameters = request.headers.get("content-type", "").partition(";")
    given = given.strip().lower()
    if given not in READ_AS_JSON and not given.endswith("+json"):
        raise MediaTypeError.of("Content-Type", given, "application/json")
    if given == JSON_LINES and (lines := request.body.strip().count(b"\n")):
        raise PayloadError(f"the body: expected one line of {JSON_LINES}, which is a request, got {lines + 1}")
    charset = CHARSET.search(parameters)
    if charset is None or charset[1].lower() in UTF_8:
        return
    # What is ASCII is the same in most others, as in Latin-1; in UTF-16 it has zeros.
    if not request.body.isascii() or b"\0" in request.body:
        raise MediaTypeError.of("Content-Type", charset[0].strip(), "charset=utf-8")


CHARSET = re.compile(r"\bcharset\s*=\s*\"?([^\s\";]+)\"?", re.IGNORECASE)
UTF_8 = ("utf-8", "utf8")
READ_AS_JSON = ("", "application/json", "application/octet-stream", "text/json", JSON_LINES)
"""A line alone, as SageMaker's batch transform sends (SplitType=Line), is a JSON object."""


def read_json(body: bytes) -> Payload:
    """The JSON object in `body`; raises PayloadError where there is none, ParameterError where it is too much."""
    # A byte order mark is not JSON, but may be ignored (RFC 8259, 8.1).
    body = body.removeprefix(BOM_UTF8)
    if not body.strip():
        raise PayloadError("the body is empty, expected a JSON object")
    if len(body) > CONTAINERS:
        check_body(body)
    try:
        value = _decode(body)
    except RecursionError:
        raise PayloadError(TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PayloadError(why_unreadable(body, error)) from None
    if not isinstance(value, dict):
        raise PayloadError(f"expected a JSON object, but the body is {JSON_TYPES.get(type(value), 'a number')}")
    return cast(Payload, value)


KIND = "requestType"
"""The field of a request that asks for no generation (formatters/control.py)."""
MAX_BYTES = 1024
"""Of such a body: a longer one is not looked at, so that others cost nothing."""
MARK = b'"requestType"'
GENERATING = ("prompt", "inputs", "messages")


def control_of(request: Request) -> Payload | None:
    """The body of such a request, decoded; None for any other."""
    body = request.body
    if len(body) > MAX_BYTES or MARK not in body:
        return None
    try:
        payload = read_json(body)
    except (RequestError, RecursionError):
        # Whoever reads it next says what is wrong.
        return None
    return payload if KIND in payload and not any(name in payload for name in GENERATING) else None


TOO_DEEP = "the body is nested too deeply"
JSON_TYPES: dict[type, str] = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def ends_of(body: bytes) -> bytes:
    """What of a large body is looked at where it is refused."""
    return body[:END] + body[-END:]


def names_in(body: bytes) -> Payload:
    """Names of fields near the ends of a body that is not read, without their values."""
    return {found[1].decode(): None for found in NAME.finditer(ends_of(body))}


END = 4096
"""Bytes."""
NAME = re.compile(rb'"(\w+)"\s*:')
