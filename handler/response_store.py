"""Responses that are kept in memory, for those that go on from them (formatters/response_store.py).

They are gone with the process, and each worker has its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from ..formatters import LARGE, NotReadyError
from ..formatters.base import ResponseEncoder
from ..formatters.response_store import ResponseStore
from ..model.options.session_options import ResponseStoreOptions

__all__ = ["MemoryStore", "SmallReads", "TooLargeHereError", "keep", "kept_of", "response_store"]

log = logging.getLogger(__name__)


def response_store(options: ResponseStoreOptions) -> ResponseStore | None:
    """The store that the options ask for; None: there is none."""
    return MemoryStore(options) if options.response_store else None


Kept = tuple[str, bytes, Sequence[str]]
"""A response's id, what is kept of it, and the ids of its output."""


def kept_of(reply: ResponseEncoder) -> Kept | None:
    """What an encoder has to be kept, if it knows of such a thing."""
    kept: Kept | None = getattr(reply, "kept", None)
    return kept


def keep(reply: ResponseEncoder, store: ResponseStore) -> None:
    """Keeps a response that has ended, if it is to be kept and nothing has failed."""
    kept = kept_of(reply)
    if kept is not None and reply.failure is None:
        store.put(*kept)


GONE: tuple[float, None, tuple[str, ...]] = (0.0, None, ())


class MemoryStore:
    """A ResponseStore whose bytes, number and time are bounded."""

    def __init__(self, options: ResponseStoreOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self.max_bytes = options.response_store_max_bytes
        self._max_number = options.response_store_max_number
        self._lifetime = options.response_store_expiration
        self._clock = clock
        self._kept: dict[str, tuple[float, bytes, Sequence[str]]] = {}
        """Until when, what, and the ids of its output; in the order in which they came, and in which they expire."""
        self._having: dict[str, str] = {}
        """The responses' ids by those of their output."""
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, response_id: str, kept: bytes, items: Sequence[str] = ()) -> None:
        """See ResponseStore. What is larger than all may be is not kept."""
        with self._lock:
            self._forget_expired()
            if len(kept) > self.max_bytes:
                log.warning("a response of %d bytes is not kept (option.response_store_max_bytes)", len(kept))
                return
            while self._kept and (len(self._kept) >= self._max_number or self._bytes + len(kept) > self.max_bytes):
                self._forget(next(iter(self._kept)))
            self._kept[response_id] = (self._clock() + self._lifetime, kept, items)
            self._having.update(dict.fromkeys(items, response_id))
            self._bytes += len(kept)

    def get(self, response_id: str) -> bytes | None:
        """See ResponseStore."""
        with self._lock:
            self._forget_expired()
            _, kept, _ = self._kept.get(response_id, GONE)
            return kept

    def having(self, item_id: str) -> str | None:
        """See ResponseStore."""
        with self._lock:
            self._forget_expired()
            return self._having.get(item_id)

    def remove(self, response_id: str) -> bool:
        """See ResponseStore."""
        with self._lock:
            self._forget_expired()
            return self._forget(response_id)

    def _forget_expired(self) -> None:
        now = self._clock()
        while self._kept:
            response_id, (expires, _, _) = next(iter(self._kept.items()))
            if expires > now:
                return
            self._forget(response_id)

    def _forget(self, response_id: str) -> bool:
        _, kept, items = self._kept.pop(response_id, GONE)
        self._bytes -= len(kept or b"")
        for item_id in items:
            self._having.pop(item_id, None)
        return kept is not None


class TooLargeHereError(NotReadyError):
    """What a request names is stored and too large to be read here."""

    def __init__(self) -> None:
        super().__init__(Future())


class SmallReads:
    """A ResponseStore that is read by a thread which reads no more than `left` bytes; raises TooLargeHereError."""

    def __init__(self, store: ResponseStore, left: int) -> None:
        self._store = store
        self._left = left

    @classmethod
    def of(cls, store: ResponseStore | None, body: bytes) -> SmallReads | None:
        """What is left for it beside a request's body, of LARGE bytes in all."""
        return None if store is None else cls(store, LARGE - len(body))

    @property
    def max_bytes(self) -> int:
        """See ResponseStore."""
        return self._store.max_bytes

    def put(self, response_id: str, kept: bytes, items: Sequence[str] = ()) -> None:
        """See ResponseStore."""
        self._store.put(response_id, kept, items)

    def get(self, response_id: str) -> bytes | None:
        """See ResponseStore."""
        kept = self._store.get(response_id)
        self._left -= len(kept or b"")
        if self._left < 0:
            raise TooLargeHereError
        return kept

    def having(self, item_id: str) -> str | None:
        """See ResponseStore."""
        return self._store.having(item_id)

    def remove(self, response_id: str) -> bool:
        """See ResponseStore."""
        return self._store.remove(response_id)
