"""Responses that are kept in memory, for those that go on from them (formatters/response_store.py).

They are gone with the process, and each worker has its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ..formatters.base import ResponseEncoder
from ..formatters.response_store import ResponseStore
from ..model.options.session_options import ResponseStoreOptions

__all__ = ["MemoryStore", "keep", "kept_of", "response_store"]

log = logging.getLogger(__name__)


def response_store(options: ResponseStoreOptions) -> ResponseStore | None:
    """The store that the options ask for; None: there is none."""
    return MemoryStore(options) if options.response_store else None


def kept_of(reply: ResponseEncoder) -> tuple[str, bytes] | None:
    """What an encoder has to be kept, if it knows of such a thing: a response's id, and what is kept of it."""
    kept: tuple[str, bytes] | None = getattr(reply, "kept", None)
    return kept


def keep(reply: ResponseEncoder, store: ResponseStore) -> None:
    """Keeps a response that has ended, if it is to be kept and nothing has failed."""
    kept = kept_of(reply)
    if kept is not None and reply.failure is None:
        store.put(*kept)


class MemoryStore:
    """A ResponseStore whose bytes, number and time are bounded."""

    def __init__(self, options: ResponseStoreOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self.max_bytes = options.response_store_max_bytes
        self._max_number = options.response_store_max_number
        self._lifetime = options.response_store_expiration
        self._clock = clock
        self._kept: dict[str, tuple[float, bytes]] = {}
        """Until when, and what; in the order in which they came, which is that in which they expire."""
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, response_id: str, kept: bytes) -> None:
        """See ResponseStore. What is larger than all may be is not kept."""
        with self._lock:
            self._forget_expired()
            if len(kept) > self.max_bytes:
                log.warning("a response of %d bytes is not kept (option.response_store_max_bytes)", len(kept))
                return
            while self._kept and (len(self._kept) >= self._max_number or self._bytes + len(kept) > self.max_bytes):
                self._forget(next(iter(self._kept)))
            self._kept[response_id] = (self._clock() + self._lifetime, kept)
            self._bytes += len(kept)

    def get(self, response_id: str) -> bytes | None:
        """See ResponseStore."""
        with self._lock:
            self._forget_expired()
            _, kept = self._kept.get(response_id, (0.0, None))
            return kept

    def remove(self, response_id: str) -> bool:
        """See ResponseStore."""
        with self._lock:
            self._forget_expired()
            return self._forget(response_id)

    def _forget_expired(self) -> None:
        now = self._clock()
        while self._kept:
            response_id, (expires, _) = next(iter(self._kept.items()))
            if expires > now:
                return
            self._forget(response_id)

    def _forget(self, response_id: str) -> bool:
        _, kept = self._kept.pop(response_id, (0.0, None))
        self._bytes -= len(kept or b"")
        return kept is not None
