"""What a worker hands to DJL's Java side for one request, in the form of djl_python's `Output.binary_encode`.

A frame is a dict of strings: a 16-bit count, then for each key and value a 32-bit length and UTF-8, all big-endian.
The keys are `data`, `last`, and for an error before the first record `code` and `error`, at which Java drops `data`
and answers `{"error": ..., "code": ...}` with that status (RollingBatch and AsyncRequestManager:
Request.addResponse). Frames are the content items of an `Output`, written as `Output.send` does: a 16-bit code, a
message, properties, and of each item a key (length -1: none) and its length.

A field holds at most 20 MiB: beyond that `Connection.OutputDecoder` throws and closes the worker's channel, which ends
every request in flight (CodecUtils.MAX_BUFFER_SIZE; a smaller MAX_NETTY_BUFFER_SIZE of the host's is not known here).
What is longer goes in slices.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from ...formatters import Response
from ...formatters.base import JSON
from ...model.errors import GenerationError, LmiError
from ..exchange import Exchange
from ..headers import headers_of

__all__ = [
    "FIELD",
    "MIN_AGE_S",
    "NOTHING",
    "Frame",
    "frame_of_exchange",
    "frame_of_fault",
    "frame_of_response",
    "message_of_batch",
    "next_slice",
    "slices",
    "start_of_output",
]

log = logging.getLogger(__name__)

FIELD = 20 << 20
"""Bytes that a field may have."""
WHOLE = FIELD - 256
"""Bytes of an answer that goes in one frame, whose other fields are short."""
SLICE = 8 << 20
"""Bytes of a piece at most: a frame has other fields too, and a step carries one piece of each request."""

_LENGTH = struct.Struct(">i")
_COUNT = struct.Struct(">h")


def _text(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value


_OK = _COUNT.pack(200) + _text(b"OK")
_NO_KEY = _LENGTH.pack(-1)

_TWO = struct.pack(">h", 2) + _text(b"data")
_FOUR = struct.pack(">h", 4) + _text(b"data")
_MORE = _text(b"last") + _text(b"false")
_LAST = _text(b"last") + _text(b"true")
_CODE = _text(b"code")
_ERROR = _text(b"error")


_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


# A msgspec struct because one is made for each token, which takes a dataclass ten times as long.
class Frame(msgspec.Struct, frozen=True):
    """One message about one request."""

    data: bytes = b""
    """UTF-8; empty and not last: nothing is sent to the client."""
    last: bool = False
    headers: Mapping[str, str] = _NO_HEADERS
    """Response headers; only those of a request's first frame count."""
    failure: LmiError | None = None
    code: int = 424
    """The status that Java is to send with `failure`."""

    def item(self) -> tuple[bytes, ...]:
        """The content item that it is, to be joined."""
        ending = _LAST if self.last else _MORE
        if self.failure is None:
            size = len(self.data)
            return (
                _NO_KEY,
                _LENGTH.pack(size + len(_TWO) + 4 + len(ending)),
                _TWO,
                _LENGTH.pack(size),
                self.data,
                ending,
            )
        error = (_CODE, _text(str(self.code).encode()), _ERROR, _text(self.failure.message.encode()))
        pieces = b"".join((_FOUR, _text(b""), ending, *error))
        return _NO_KEY, _text(pieces)


NOTHING = Frame()
_NOTHING = b"".join(NOTHING.item())


def start_of_output(properties: Mapping[str, str], items: int) -> bytes:
    """An Output up to its content items."""
    pairs = (_text(name.encode()) + _text(value.encode()) for name, value in properties.items())
    return b"".join((_OK, _COUNT.pack(len(properties)), *pairs, _COUNT.pack(items)))


def message_of_batch(frames: Sequence[Frame]) -> bytes:
    """The Output of a rolling batch: a frame of each request, whose headers are properties."""
    headers = {
        f"batch_{index}_{name}": value
        for index, frame in enumerate(frames)
        if frame.headers
        for name, value in frame.headers.items()
    }
    pieces = [start_of_output(headers, len(frames))]
    for frame in frames:
        if frame is NOTHING:
            pieces.append(_NOTHING)
        else:
            pieces += frame.item()
    return b"".join(pieces)


MIN_AGE_S = 0.020
"""Seconds that a request must be old before its answer goes to Java in one frame.

ChunkedBytesSupplier.appendContent says that there is no more before it puts the last chunk there (ai.djl api 0.34.0 and
0.36.0). Java's front end looks first whether there is more, and then waits (InferenceRequestHandler.sendOutput). Where
it looks for the first time in between, nothing is sent and the client waits for ever: seen for three of a thousand
refusals of a host just started on two busy cores, which were there as soon as Java was.
"""

JAVAS_OWN = {"Content-Type": JSON}
"""What an error that Java gives a body of its own has instead of the dialect's; other headers stay."""

CODES = {415: 424}
"""Statuses that are others through DJL (docs/decisions.md: Content types)."""


def frame_of_exchange(exchange: Exchange, *, first: bool, merge: bool) -> Frame:
    """The next frame of a running request, NOTHING where none is ready.

    An answer that is not streamed is one frame, so that Java gives it a Content-Length, which SageMaker's asynchronous
    inference needs. Of a stream each record is one, or with `merge` all that are ready.
    What is too long for a frame comes in several, which Java joins again: it sends what it gets as it comes. A stream's
    last frame is empty, for a reader on the Java side may miss the last chunk. A first one that is the last too it
    waits for, if it comes late enough (MIN_AGE_S). docs/decisions.md: Records and chunks.
    """
    finished = exchange.finished
    records = exchange.records
    if not records and not finished:
        return NOTHING
    whole = first and not exchange.call.streamed
    if whole and not finished:
        # It is about to be marked as finished.
        return NOTHING
    reply = exchange.call.reply
    headers = headers_of(reply) if first else _NO_HEADERS
    if first and exchange.failure is not None and reply.status >= 400:
        if not finished:
            # The same of a stream, whose first record it would look like.
            return NOTHING
        records.clear()
        return _frame_of_failure(exchange.failure, reply.status, headers)
    if whole and sum(map(len, records)) <= WHOLE:
        return Frame(exchange.take_all(), True, headers)
    data = next_slice(records) if records else b""
    if merge and records:
        data = b"".join((data, *_fitting(records, SLICE - len(data))))
    return Frame(data, finished and not records and (first or not data), headers)


def frame_of_fault(exchange: Exchange, error: Exception) -> Frame:
    """The last frame of a request whose next one could not be made; the others' go on."""
    log.error("request %s: its response could not be sent", exchange.request_id, exc_info=error)
    exchange.abort()
    return Frame(last=True, failure=GenerationError(f"the response could not be sent: {type(error).__name__}"))


def _fitting(records: deque[bytes], room: int) -> Iterator[bytes]:
    """Takes the records that fit in so many bytes, of those that there are now: more may come on the engine's thread
    meanwhile."""
    for _ in range(len(records)):
        room -= len(records[0])
        if room < 0:
            return
        yield records.popleft()


def frame_of_response(answer: Response) -> Frame:
    """A short answer of a host that has no service yet, or that says something of its own."""
    headers = headers_of(answer)
    if answer.failure is not None and answer.status >= 400:
        return _frame_of_failure(answer.failure, answer.status, headers)
    return Frame(answer.body, True, headers)


def _frame_of_failure(failure: LmiError, status: int, headers: Mapping[str, str]) -> Frame:
    """On these paths Java gives errors a body of its own (docs/decisions.md: Errors behind DJL Serving)."""
    return Frame(b"", True, {**headers, **JAVAS_OWN}, failure, CODES.get(status, status))


def slices(record: bytes) -> list[bytes]:
    """`record` in pieces of at most SLICE bytes, none of which ends within a character: Java reads each as text."""
    pieces: list[bytes] = []
    start = 0
    while len(record) - start > SLICE:
        end = start + SLICE
        while end > start + SLICE - 3 and record[end] & 0xC0 == 0x80:
            end -= 1
        pieces.append(record[start:end])
        start = end
    pieces.append(record[start:] if start else record)
    return pieces


def next_slice(records: deque[bytes]) -> bytes:
    """Takes the next record, or the first piece of it: the others are the next records then."""
    record = records.popleft()
    if len(record) <= SLICE:
        return record
    first, *others = slices(record)
    records.extendleft(reversed(others))
    return first
