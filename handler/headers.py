"""Headers that several hosts read or send."""

from __future__ import annotations

import re
import uuid

from ..formatters import Response
from ..formatters.base import ResponseEncoder

__all__ = ["AUTHENTICATE", "REQUEST_ID_HEADER", "headers_of", "request_id_of"]

REQUEST_ID_HEADER = "x-request-id"

AUTHENTICATE = {"WWW-Authenticate": "Bearer"}
"""Of a 401 (RFC 9110, 11.6.1)."""

_REQUEST_ID = re.compile(r"[\w.:/+=@,;~-]{1,128}", re.ASCII)


def request_id_of(given: str | None) -> str:
    """A request's id: the one that came with it, or a new one where that could not stand in a header and in a log."""
    return given if given and _REQUEST_ID.fullmatch(given) else str(uuid.uuid4())


def headers_of(reply: ResponseEncoder | Response) -> dict[str, str]:
    """The headers of an answer but those of its length, with Retry-After where the same request may succeed later."""
    headers = {"Content-Type": reply.content_type, **reply.headers}
    if reply.status >= 400 and reply.failure is not None and reply.failure.retry_after is not None:
        headers["Retry-After"] = str(reply.failure.retry_after)
    if reply.status == 401:
        headers.update(AUTHENTICATE)
    text = "".join((*headers, *headers.values()))
    if text.isascii() and text.isprintable():
        return headers
    # A dialect of the user's may put into a header what a request says, and a line break there begins another header.
    return {UNPRINTED.sub("", name): UNPRINTED.sub(" ", value) for name, value in headers.items()}


UNPRINTED = re.compile(r"[^\x20-\x7e\xa1-\xff]+")
