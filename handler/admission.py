"""Which requests a service takes on, and for how long.

    request  --refusal--> TooLargeError, OverloadedError: answered at once
    exchange --admit--> open --release--> gone
                         |
                         +--sweep, on the watch's thread--> Expiring.expire(TimeLimitError), open until it has ended

All requests have the same time, so that the oldest is the next to expire: there is nothing to sort, and nobody needs to
be woken when a request comes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from ..formatters import Request
from ..formatters.common.json_body import holds_file
from ..model.engine import Engine
from ..model.errors import LmiError, OverloadedError, TimeLimitError, TooLargeError
from ..model.options import Settings

__all__ = ["Admission", "Expiring", "longest_body", "too_large"]

log = logging.getLogger(__name__)


class Expiring(Protocol):
    """What may be ended from outside."""

    @property
    def request_id(self) -> str:
        """Its id, which others may have too."""
        ...

    def expire(self, error: LmiError) -> None:
        """Ends it with `error`; on any thread."""
        ...


class Admission:
    """The limits of one service, and what is open in it. For any thread."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._settings = settings
        self._limits = settings.limits
        self._running = settings.max_rolling_batch_size
        self._engine = engine
        self._open: dict[Expiring, float] = {}
        """When each is to be ended, oldest first."""
        self._late: dict[Expiring, float] = {}
        """The same of those that have been told to end."""
        self._lock = threading.Lock()

    @property
    def open(self) -> int:
        """How many requests are open."""
        return len(self._open) + len(self._late)

    @property
    def max_unsent_bytes(self) -> int:
        """`option.max_unsent_bytes`."""
        return self._limits.max_unsent_bytes

    @property
    def max_answer_bytes(self) -> int:
        """`option.max_answer_bytes`."""
        return self._limits.max_answer_bytes

    def refusal(self, request: Request) -> LmiError | None:
        """Why the request is refused, if it is. Its body has not been read."""
        limits, longest = self._limits, longest_body(self._settings, request.headers)
        size = len(request.body) + (sum(len(value) for _, value in request.form) if request.form else 0)
        if size > longest:
            return too_large(longest, size)
        # Requests with several prompts, and those that are still with user code: either number may be higher.
        busy = max(self.open, self._engine.running)
        if busy < self._running + limits.max_queued_requests:
            return None
        return OverloadedError(
            f"{busy} requests are open, expected fewer than {self._running + limits.max_queued_requests} "
            "(option.max_rolling_batch_size and option.max_queued_requests together)"
        )

    def admit(self, exchange: Expiring) -> None:
        """Counts a request in, from now on."""
        deadline = time.monotonic() + self._limits.request_timeout
        with self._lock:
            self._open[exchange] = deadline

    def release(self, exchange: Expiring) -> None:
        """Counts it out; to do so again changes nothing."""
        with self._lock:
            self._open.pop(exchange, None)
            self._late.pop(exchange, None)

    def named(self, request_id: str) -> list[Expiring]:
        """Those that are open under an id."""
        with self._lock:
            return [one for one in (*self._open, *self._late) if one.request_id == request_id]

    def expire_all(self, error: LmiError) -> None:
        """Ends whatever is open."""
        with self._lock:
            left = list(self._open)
            self._move_late(left)
        for exchange in left:
            _expire(exchange, error)

    def _move_late(self, exchanges: Iterable[Expiring]) -> None:
        for exchange in exchanges:
            self._late[exchange] = self._open.pop(exchange)

    def sweep(self, now: float) -> float:
        """Ends what has taken too long by `now` (time.monotonic). Returns when there may be something to end again."""
        limit = self._limits.request_timeout
        while True:
            with self._lock:
                exchange, deadline = next(iter(self._open.items()), (None, 0.0))
                if exchange is None:
                    return now + limit
                if deadline > now:
                    return deadline
                self._move_late([exchange])
            late = TimeLimitError(f"the request took longer than {limit:g} seconds (option.request_timeout)")
            _expire(exchange, late)


def _expire(exchange: Expiring, error: LmiError) -> None:
    """Ends one. What fails there keeps no other from its end."""
    try:
        exchange.expire(error)
    except Exception:
        log.exception("request %s could not be ended", exchange.request_id)


FRAME = 64 << 10
"""Bytes that a form may have beside a file."""


def longest_body(settings: Settings, headers: Mapping[str, str]) -> int:
    """Bytes that a body may have. A file costs little beside JSON: one with audio may be as long as audio may be."""
    longest = settings.limits.max_body_bytes
    return max(longest, settings.media.max_audio_bytes + FRAME) if holds_file(headers) else longest


def too_large(limit: int, given: int | None = None) -> TooLargeError:
    """The error of a body that is too long; `given` is its length, if known."""
    got = "more" if given is None else str(given)
    return TooLargeError(f"the body: expected at most {limit} bytes (option.max_body_bytes), got {got}")
