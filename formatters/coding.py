"""What headers say of a body: its type, and how it is encoded (RFC 9110, 8.3 and 8.4). The same behind every host.

Request --decoded--> Request, as if it had come without Content-Encoding
"""

from __future__ import annotations

import re
import zlib
from dataclasses import replace
from importlib import import_module
from typing import Any

from ..model.errors import MediaTypeError, PayloadError, TooLargeError
from .base import Request
from .common.body_size import pieces_of
from .records import JSON_LINES

__all__ = ["check_content_type", "decoded", "is_encoded"]

HEADER = "content-encoding"
CODINGS = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate", "zstd": "zstd"}
"""By the names that they have in the header."""
GZIP, ZLIB, BARE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
"""zlib's numbers for gzip, for deflate as the header means it, and for deflate without a head, as some clients send."""
MAX_RATIO = 100
"""How many times as long as it came a body may become, beyond the first SMALL bytes: texts become 3 to 20 times."""
SMALL = 1 << 20
MAX_WINDOW = 8 << 20
"""Bytes that zstd's decoder may have to look back (RFC 9659)."""


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


def is_encoded(request: Request) -> bool:
    """Whether the body has to be decoded before it is read."""
    return bool(request.body) and request.headers.get(HEADER, "").strip().lower() not in {"", "identity"}


def decoded(request: Request, max_bytes: int) -> Request:
    """The request with its body decoded, and without the header.

    Raises MediaTypeError for another coding, and for several; PayloadError for a body that is not what the header says;
    TooLargeError where more than `max_bytes` would come of it, or MAX_RATIO times as much as came, of which no more are
    held than that.
    """
    if not is_encoded(request):
        return request
    given = request.headers[HEADER]
    coding = CODINGS.get(given.strip().lower())
    zstd = _zstandard() if coding == "zstd" else None
    if coding is None or (coding == "zstd" and zstd is None):
        expected = "gzip or deflate" if _zstandard() is None else "gzip, deflate or zstd"
        raise MediaTypeError.of("Content-Encoding", given, expected)
    body = request.body
    most = max(SMALL, MAX_RATIO * len(body))
    try:
        read = _unpacked(zstd, body, min(max_bytes, most)) if zstd else _inflated(body, coding, min(max_bytes, most))
    except _TooLongError:
        limit = f"{max_bytes} bytes" if max_bytes <= most else f"{MAX_RATIO} times its {len(body)} bytes"
        raise TooLargeError(f"the body: expected at most {limit} once it is decoded, got more") from None
    return replace(
        request,
        body=read,
        headers={name: value for name, value in request.headers.items() if name != HEADER},
        attributes={name: value for name, value in request.attributes.items() if name.lower() != HEADER},
    )


class _TooLongError(Exception):
    """More would come of a body than may."""


def _inflated(body: bytes, coding: str, max_bytes: int) -> bytes:
    decoder = zlib.decompressobj(GZIP if coding == "gzip" else ZLIB if _has_head(body) else BARE)
    parts: list[bytes] = []
    size = 0
    for piece in pieces_of(body):
        try:
            # Never 0, which would mean no limit.
            part = decoder.decompress(piece, max_bytes + 1 - size)
        except zlib.error as error:
            raise PayloadError(f"the body is not {coding}: {str(error).rpartition(': ')[2]}") from None
        size += len(part)
        if size > max_bytes:
            raise _TooLongError
        parts.append(part)
    if not decoder.eof:
        raise PayloadError(f"the body is not {coding}: it ends too early")
    if decoder.unused_data:
        raise PayloadError(f"the body is not {coding}: bytes follow its end")
    return b"".join(parts)


def _zstandard() -> Any:
    """The package of that name, which is no dependency; None where it is not there."""
    try:
        return import_module("zstandard")
    except ImportError:
        return None


def _unpacked(zstd: Any, body: bytes, max_bytes: int) -> bytes:
    """A body in zstd: one frame (RFC 8878)."""
    decoder = zstd.ZstdDecompressor(max_window_size=MAX_WINDOW)
    try:
        size = zstd.frame_content_size(body)
        if size < 0:
            # Its head does not say.
            size = len(decoder.stream_reader(body).read(max_bytes + 1))
        if size > max_bytes:
            raise _TooLongError
        # The reader does not say whether the frame ends, and alone.
        read: bytes = decoder.decompress(body, max_output_size=size, allow_extra_data=False)
    except zstd.ZstdError as error:
        raise PayloadError(f"the body is not zstd: {error}") from None
    return read


def _has_head(body: bytes) -> bool:
    """Whether deflate has zlib's head (RFC 1950, 2.2): a method, and a number that 31 divides."""
    return body[0] & 15 == zlib.DEFLATED and int.from_bytes(body[:2], "big") % 31 == 0
