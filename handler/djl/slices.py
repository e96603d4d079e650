"""Records and pages in pieces that DJL's Java side takes: one field of its protocol holds at most 20 MiB.

Beyond that `Connection.OutputDecoder` throws and closes the worker's channel, which ends every request in flight
(CodecUtils.MAX_BUFFER_SIZE; a smaller MAX_NETTY_BUFFER_SIZE of the host's is not known here).
"""

from __future__ import annotations

from collections import deque

__all__ = ["FIELD", "SLICE", "WHOLE", "next_slice", "slices"]

FIELD = 20 << 20
"""Bytes that a field may have."""
WHOLE = FIELD - 256
"""Bytes of an answer that goes in one frame, whose other fields are short."""
SLICE = 8 << 20
"""Bytes of a piece at most: a frame has other fields too, and a step carries one piece of each request."""


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
