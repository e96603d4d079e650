"""Rolling batch: Java calls `step` again and again, each time with every request that is open, in its own order.

    items: [running, running, ..., new, new]  -->  step  -->  [frame, frame, ..., frame, frame]

The engine runs beside this, so `step` only hands over what has become ready since the last call, one record for each
request. New requests can join between two calls only: a call waits for news, but not for long.

A call costs Java as much for a frame of one record as for one of several. With `option.merge_records` calls are
therefore paced: Java spends at most a quarter of its time on them, and what becomes ready meanwhile shares frames.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from ...formatters import Request, Response
from ...model.errors import GenerationError
from ..exchange import Exchange
from ..service import Service
from .frames import NOTHING, Frame, frame_of_exchange, frame_of_fault, frame_of_response

__all__ = ["RollingBatch"]

log = logging.getLogger(__name__)

POLL_TIMEOUT_S = 0.005
"""Seconds that a call waits for news when there is nothing to hand over."""
PACE_FACTOR = 3
"""With merged records, how many times as long as Java was away it is made to wait."""
MAX_PACE_S = 0.010
"""Seconds that it waits at most: new requests can join when the call has returned."""


class _Open:
    """A request that Java holds open: an exchange that runs, or one frame that is all there is to say."""

    __slots__ = ("begun", "exchange", "frame")

    def __init__(self, exchange: Exchange | None = None, frame: Frame = NOTHING) -> None:
        self.exchange = exchange
        self.frame = frame
        self.begun = False

    @property
    def first_is_ready(self) -> bool:
        """Whether somebody waits for the beginning of an answer that is there."""
        return not self.begun and (self.exchange is None or bool(self.exchange.records) or self.exchange.finished)

    def next(self, merge: bool) -> Frame:
        """What there is to send now."""
        if self.exchange is None:
            return self.frame
        try:
            frame = frame_of_exchange(self.exchange, first=not self.begun, merge=merge)
        except Exception as error:  # noqa: BLE001 - logged there
            return frame_of_fault(self.exchange, error)
        if frame is not NOTHING:
            self.begun = True
        return frame


class RollingBatch:
    """The requests that Java holds open, in its order."""

    def __init__(self, service: Service, poll_timeout: float = POLL_TIMEOUT_S) -> None:
        self._service = service
        self._poll_timeout = poll_timeout
        self._merge = service.settings.merge_records
        self._open: list[_Open] = []
        self._condition = threading.Condition()
        self._notifications = 0
        self._returned = 0.0
        """When the last call returned, by time.monotonic()."""
        service.listen(self._notify)

    def step(self, items: Sequence[Request | None], *, reset: bool = False) -> list[Frame]:
        """One frame for each item, in order. An item is a new request, or None for one that runs already.

        With `reset` Java has forgotten every earlier request: what still runs is aborted. Never raises for what a
        request does.
        """
        notifications = self._notifications
        running = sum(item is None for item in items)
        if reset or running != len(self._open):
            self._reset(running)
        self._open += [self._begin(item) for item in items if item is not None]
        if self._merge:
            self._pace(time.monotonic() - self._returned)
        frames = [entry.next(self._merge) for entry in self._open]
        if frames and all(frame is NOTHING for frame in frames):
            with self._condition:
                self._condition.wait_for(lambda: self._notifications != notifications, self._poll_timeout)
            frames = [entry.next(self._merge) for entry in self._open]
        self._open = [entry for entry, frame in zip(self._open, frames, strict=True) if not frame.last]
        self._returned = time.monotonic()
        return frames

    def _pace(self, away: float) -> None:
        """Lets more become ready, where Java was `away` for that long; but for no longer than until a first record.

        Only answers that have begun gain by it: whole ones are one frame anyway.
        """
        if any(entry.begun for entry in self._open):
            with self._condition:
                waiting = min(PACE_FACTOR * away, MAX_PACE_S)
                self._condition.wait_for(lambda: any(entry.first_is_ready for entry in self._open), waiting)

    def _begin(self, request: Request) -> _Open:
        opened = self._service.open(request)
        return _Open(frame=frame_of_response(opened)) if isinstance(opened, Response) else _Open(opened)

    def _reset(self, running: int) -> None:
        """Aborts what runs. `running` requests that Java still believes in are answered with an error."""
        for entry in self._open:
            if entry.exchange is not None:
                entry.exchange.abort()
        if self._open:
            log.warning("rolling batch reset: %d requests aborted, %d expected by the host", len(self._open), running)
        lost = Frame(last=True, failure=GenerationError("the request was lost in a reset of the rolling batch"))
        self._open = [_Open(frame=lost) for _ in range(running)]

    def _notify(self) -> None:
        """Called when there may be new records."""
        with self._condition:
            self._notifications += 1
            self._condition.notify()
