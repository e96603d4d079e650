"""How much of an answer may wait for a client that does not read it (option.max_unsent_bytes)."""

from __future__ import annotations

from collections import deque
from time import monotonic

from ..model.errors import LmiError, SlowReaderError

__all__ = ["PATIENCE_S", "Unsent"]

MIN_RECORDS_BETWEEN_CHECKS = 16
"""The fewest records between two looks at how many bytes wait."""
PATIENCE_S = 5.0
"""Seconds that more bytes may wait than option.max_unsent_bytes: a fast client takes them meanwhile."""


class Unsent:
    """The records of one answer that wait."""

    __slots__ = ("_limit", "_newest", "_patient_until", "next_check")

    def __init__(self, limit: int) -> None:
        """`limit`: bytes."""
        self._limit = limit
        self.next_check = 0
        """With how many records that wait `error` is to be asked again."""
        self._newest: bytes | None = None
        """The newest record when too many bytes were found to wait; until `_patient_until` they may."""
        self._patient_until = 0.0

    def error(self, records: deque[bytes], patience: float) -> LmiError | None:
        """What to end with if more has waited than may, for `patience` seconds.

        What was made since does not count, nor does the first record, the next to be taken. Counted only where as many
        more of the longest record could reach the limit: rarely, unless a client is slow.
        """
        if (now := monotonic()) < self._patient_until:
            return None
        there = list(records.copy())
        sizes = [len(record) for record in there]
        waiting, limit = sum(sizes[1:]), self._limit
        if waiting <= limit:
            self._newest = None
            room = max((limit - waiting) // max(sizes, default=1), MIN_RECORDS_BETWEEN_CHECKS)
            self.next_check = len(sizes) + min(room, len(sizes) + MIN_RECORDS_BETWEEN_CHECKS)
            return None
        # Where it has been taken meanwhile, so has all before it.
        count = next((place for place, record in enumerate(there, 1) if record is self._newest), 0)
        waited = sum(sizes[1:count]) if patience else waiting
        if waited > limit:
            return SlowReaderError(
                f"{waited} bytes are waiting for a slow client, expected at most {limit} (option.max_unsent_bytes)"
            )
        self._newest, self._patient_until = there[-1], now + patience
        self.next_check = 0
        return None
