"""What headers say of a body: its type, and how it is encoded (RFC 9110, 8.3 and 8.4). The same behind every host.

Request --decoded--> Request, as if it had come without Content-Encoding
"""

from __future__ import annotations

import re
import zlib
from dataclasses import replace

from ..model.errors import MediaTypeError, PayloadError, TooLargeError
from .base import Request
from .common.body_size import pieces_of

__all__ = ["check_content_type", "decoded", "is_encoded"]

HEADER = "content-encoding"
CODINGS = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate"}
"""By the names that they have in the header."""
GZIP, ZLIB, BARE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
"""zlib's numbers for gzip, for deflate as the header means it, and for deflate without a head, as some clients send."""


def check_content_type(request: Request) -> None:
    """JSON by name, octets, or nothing said, in UTF-8. Raises MediaTypeError for anything else."""
    given, _, parameters = request.headers.get("content-type", "").partition(";")
    given = given.strip().lower()
    if given not in READ_AS_JSON and not given.endswith("+json"):
        raise MediaTypeError.of("Content-Type", given, "application/json")
    charset = CHARSET.search(parameters)
    if charset is None or charset[1].lower() in UTF_8:
        return
    # What is ASCII is the same in most others, as in Latin-1; in UTF-16 it has zeros.
    if not request.body.isascii() or b"\0" in request.body:
        raise MediaTypeError.of("Content-Type", charset[0].strip(), "charset=utf-8")


CHARSET = re.compile(r"\bcharset\s*=\s*\"?([^\s\";]+)\"?", re.IGNORECASE)
UTF_8 = ("utf-8", "utf8")
READ_AS_JSON = ("", "application/json", "application/octet-stream", "text/json")


def is_encoded(request: Request) -> bool:
    """Whether the body has to be decoded before it is read."""
    return bool(request.body) and request.headers.get(HEADER, "").strip().lower() not in {"", "identity"}


def decoded(request: Request, max_bytes: int) -> Request:
    """The request with its body decoded, and without the header.

    Raises MediaTypeError for another coding, and for several; PayloadError for a body that is not what the header says;
    TooLargeError where more than `max_bytes` would come of it, of which no more are held than that.
    """
    if not is_encoded(request):
        return request
    given = request.headers[HEADER]
    coding = CODINGS.get(given.strip().lower())
    if coding is None:
        raise MediaTypeError.of("Content-Encoding", given, "gzip or deflate")
    return replace(
        request,
        body=_inflated(request.body, coding, max_bytes),
        headers={name: value for name, value in request.headers.items() if name != HEADER},
        attributes={name: value for name, value in request.attributes.items() if name.lower() != HEADER},
    )


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
            raise TooLargeError(f"the body: expected at most {max_bytes} bytes once it is decoded, got more")
        parts.append(part)
    if not decoder.eof:
        raise PayloadError(f"the body is not {coding}: it ends too early")
    if decoder.unused_data:
        raise PayloadError(f"the body is not {coding}: bytes follow its end")
    return b"".join(parts)


def _has_head(body: bytes) -> bool:
    """Whether deflate has zlib's head (RFC 1950, 2.2): a method, and a number that 31 divides."""
    return body[0] & 15 == zlib.DEFLATED and int.from_bytes(body[:2], "big") % 31 == 0
