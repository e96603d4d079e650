"""Bodies of the local server's requests: how they are read, and how much of them is held.

body --read_body--> bytes, or TooLargeError, OverloadedError: what is too long is never held
what is refused without its body --EarlyResponse--> the answer at once, the body dropped
"""

from __future__ import annotations

import asyncio
import contextlib

import anyio
from starlette.requests import Request as HttpRequest
from starlette.responses import Response as HttpResponse
from starlette.types import Receive, Scope, Send

from ...formatters import Request, decoded
from ...formatters import read_body as body_as_json
from ...formatters.base import Payload
from ...model.errors import OverloadedError, TimeLimitError, TooLargeError
from ..admission import too_large

__all__ = [
    "BODIES",
    "DISCARD_TIMEOUT_S",
    "MAX_CALL",
    "Bodies",
    "EarlyResponse",
    "fields_of",
    "is_small",
    "read_body",
    "read_call",
    "refuse_body",
]

SMALL = 64 << 10
"""Bytes of a body that uvicorn reads in advance."""
BODIES = 8
"""Bodies of the longest kind that may be read at once."""
MAX_CALL = 64 << 10
"""Bytes of a body that asks something of the server itself."""
DISCARD_TIMEOUT_S = 30.0
"""Seconds that the rest of an unread body may take to arrive."""
PATIENCE_S, SLOWEST = 60.0, 16 << 10
"""Seconds that a body may take, and for each so many bytes of it one more: who sends a byte a minute holds nothing."""


class Bodies:
    """How many bytes of bodies are held while they are read, of all requests together."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held = 0

    def take(self, count: int) -> None:
        """Counts bytes in; raises OverloadedError where there are too many. Negative ones are given back."""
        self.held += count
        if self.held > self.max_bytes and count > 0:
            raise OverloadedError(
                f"bodies of {self.held} bytes are being read, expected at most {self.max_bytes} "
                f"({BODIES} times option.max_body_bytes)"
            )


def is_small(http: HttpRequest) -> bool:
    """Whether the body is so short that uvicorn holds it anyway, and comes without being asked for."""
    return 0 <= _declared_length(http) <= SMALL and "expect" not in http.headers


def refuse_body(http: HttpRequest, max_bytes: int) -> TooLargeError | None:
    """The error of a body whose declared length is above `max_bytes`."""
    return too_large(max_bytes, length) if (length := _declared_length(http)) > max_bytes else None


def _declared_length(http: HttpRequest) -> int:
    """The declared length of the body; -1 if there is none."""
    if "transfer-encoding" in http.headers:
        return -1
    length = http.headers.get("content-length", "0")
    return int(length) if length.isdecimal() else -1


async def read_body(http: HttpRequest, max_bytes: int, bodies: Bodies, limit_s: float, *, waits: bool = True) -> bytes:
    """The body. `waits`: it is not there yet as a whole.

    Raises TooLargeError beyond `max_bytes`, OverloadedError where `bodies` are beyond theirs, TimeLimitError beyond
    `limit_s` seconds, or where it comes slower than SLOWEST, ClientDisconnect when the client goes away.
    """
    parts: list[bytes] = []
    size = counted = 0
    try:
        # Without another task: of requests that come together the first is on its way to the engine before the last is
        # read.
        with anyio.fail_after(min(limit_s, PATIENCE_S)) if waits else contextlib.nullcontext() as scope:
            last = scope.deadline - min(limit_s, PATIENCE_S) + limit_s if scope else 0.0
            async for chunk in http.stream():
                size += len(chunk)
                if size > max_bytes:
                    raise too_large(max_bytes)
                if size > SMALL:
                    counted, more = size, size - counted
                    bodies.take(more)
                if scope:
                    scope.deadline = min(scope.deadline + len(chunk) / SLOWEST, last)
                parts.append(chunk)
            return b"".join(parts)
        # Bytes came as the time ran out: the deadline has moved on since, and anyio tells of no timeout then.
        raise TimeoutError
    except TimeoutError:
        took = PATIENCE_S + size / SLOWEST
        late = f"the body did not arrive within {limit_s:g} seconds (option.request_timeout)"
        slow = f"{size} bytes of the body came in {took:.0f} seconds, expected {SLOWEST} a second from then on"
        raise TimeLimitError(late if took >= limit_s else slow) from None
    finally:
        bodies.take(-counted)


async def read_call(http: HttpRequest, bodies: Bodies) -> bytes:
    """A body that asks something of the server itself; raises TooLargeError, TimeLimitError, ClientDisconnect."""
    try:
        if too_long := refuse_body(http, MAX_CALL):
            raise too_long
        return await read_body(http, MAX_CALL, bodies, DISCARD_TIMEOUT_S)
    except TooLargeError:
        # No option decides on this limit.
        raise TooLargeError(f"the body: expected at most {MAX_CALL} bytes") from None
    except TimeLimitError:
        raise TimeLimitError(f"the body did not arrive within {DISCARD_TIMEOUT_S:g} seconds") from None


def fields_of(http: HttpRequest, body: bytes) -> Payload:
    """The fields of such a body; raises RequestError."""
    return body_as_json(decoded(Request(body, headers=dict(http.headers)), MAX_CALL))


class EarlyResponse(HttpResponse):
    """An answer to a request whose body has not been read to its end. It is sent at once, then the connection ends.

    Up to `max_bytes` of the body are dropped before that: most clients read no answer before they have sent everything,
    and closing a connection with unread bytes would take the answer with it.
    """

    def __init__(self, answer: HttpResponse, max_bytes: int) -> None:
        self._answer = answer
        self._max_bytes = max_bytes
        self.raw_headers = [*answer.raw_headers, (b"connection", b"close")]
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs until the body has ended, its time is over, or the client has gone."""
        answer = self._answer
        await send({"type": "http.response.start", "status": answer.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": answer.body, "more_body": True})
        # A client that waits for "100 Continue" before it sends the body will not send it.
        if b"expect" not in dict(scope["headers"]):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._drop(receive), DISCARD_TIMEOUT_S)
        await send({"type": "http.response.body", "body": b""})

    async def _drop(self, receive: Receive) -> None:
        more, dropped = True, 0
        while more and dropped <= self._max_bytes:
            message = await receive()
            dropped += len(message.get("body", b""))
            more = message.get("more_body", False)
