"""Rolling batch: Java calls `step` again and again, each time with every request that is open, in its own order.

    items: [running, running, ..., new, new]  -->  step  -->  [frame, frame, ..., frame, frame]

The engine runs beside this, so `step` only hands over what has become ready since the last call, one record for each
request. New requests can join between two calls only: a call waits for news, but not for long.

A call costs Java and the worker something for each open request, whether there is news of it or not, so a call without
news waits the longer, the longer a call takes. A frame of one record costs Java as much as one of several. With
`option.merge_records` calls that bring news are paced too: Java spends at most a quarter of its time on them, and what
becomes ready meanwhile shares frames.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence

from ....formatters import Request
from ....model.errors import GenerationError
from ...exchange import Exchange
from ...service import Service
from ..frames import NOTHING, Frame, frame_of_exchange, frame_of_fault
from .gathering import Gathering

__all__ = ["RollingBatch"]

log = logging.getLogger(__name__)

POLL_TIMEOUT_S = 0.005
"""Seconds that a call waits for news when there is nothing to hand over."""
PATIENCE = 2
"""How many times as long it waits where calls take long: new requests can join when it has returned."""
PACE_FACTOR = 3
"""How many times as long as Java was away it is made to wait: for news, or with merged records for more of them."""
MAX_PACE_S = 0.010
"""Seconds that merged records wait at most, for the same reason."""


class _Open:
    """A request that Java holds open."""

    __slots__ = ("begun", "exchange", "place")

    def __init__(self) -> None:
        self.exchange: Exchange
        self.begun = False
        self.place = 0
        """Which one in Java's order; -1: it is not among them any more."""

    @property
    def ready(self) -> bool:
        """Whether there is something to send."""
        exchange = self.exchange
        return bool(exchange.records) or exchange.finished

    def next(self, merge: bool) -> Frame:
        """What there is to send now."""
        try:
            frame = frame_of_exchange(self.exchange, first=not self.begun, merge=merge)
        except Exception as error:  # noqa: BLE001 - logged there
            return frame_of_fault(self.exchange, error)
        if frame is not NOTHING:
            self.begun = True
        return frame


class _Lost(_Open):
    """One that Java believes in, and that is not there."""

    __slots__ = ()

    @property
    def ready(self) -> bool:
        return True

    def next(self, merge: bool) -> Frame:
        return Frame(last=True, failure=GenerationError("the request was lost in a reset of the rolling batch"))


class RollingBatch:
    """The requests that Java holds open, in its order."""

    def __init__(self, service: Service, poll_timeout: float = POLL_TIMEOUT_S) -> None:
        self._service = service
        self._poll_timeout = poll_timeout
        self._merge = service.settings.merge_records == "true"
        self._gathering = None if service.settings.merge_records == "false" else Gathering(service.engine, os.getppid())
        self._open: list[_Open] = []
        self._fresh: deque[_Open] = deque()
        """Those of which there may be something to send, some of them more than once."""
        self._condition = threading.Condition()
        self._returned = 0.0
        """When the last call returned, by time.monotonic()."""
        self._ended = False
        """Whether a request has ended with it."""
        service.listen(self._notify)

    def step(self, items: Sequence[Request | None], *, reset: bool = False) -> list[Frame]:
        """One frame for each item, in order. An item is a new request, or None for one that runs already.

        With `reset` Java has forgotten every earlier request: what still runs is aborted. Never raises for what a
        request does.
        """
        away = time.monotonic() - self._returned
        running = items.count(None)
        if reset or running != len(self._open):
            self._reset(running)
        for item in items:
            if item is not None:
                self._begin(item)
        if self._merge:
            self._pace(away)
        if self._gathering is not None:
            self._gathering.look()
        if not self._fresh and self._open:
            # Where there was no room, one request joins a call (RollingBatch.run), and clients often ask again at once.
            moves = self._ended or running < len(items)
            waiting = self._poll_timeout
            if not (moves or self._merge):
                waiting = min(max(waiting, PACE_FACTOR * away), PATIENCE * waiting)
            with self._condition:
                self._condition.wait_for(lambda: self._fresh, waiting)
        frames = self._frames()
        self._returned = time.monotonic()
        return frames

    def _frames(self) -> list[Frame]:
        """One of each; those that end are forgotten."""
        frames = [NOTHING] * len(self._open)
        again: list[_Open] = []
        ended = False
        # As many as there are now: more may come on the engine's thread meanwhile.
        for _ in range(len(self._fresh)):
            entry = self._fresh.popleft()
            if entry.place < 0 or frames[entry.place] is not NOTHING:
                continue
            frame = frames[entry.place] = entry.next(self._merge)
            if frame.last:
                ended, entry.place = True, -1
                if not isinstance(entry, _Lost):
                    # The exchange knows of the entry, by what it tells its news.
                    del entry.exchange
            elif frame is not NOTHING and entry.ready:
                again.append(entry)
        if ended:
            self._open = [entry for entry, frame in zip(self._open, frames, strict=True) if not frame.last]
            self._number()
        self._fresh.extend(again)
        self._ended = ended
        return frames

    def _number(self) -> None:
        for place, entry in enumerate(self._open):
            entry.place = place

    def _pace(self, away: float) -> None:
        """Lets more become ready, where Java was `away` for that long; but for no longer than until a first record.

        Only answers that have begun gain by it: whole ones are one frame anyway.
        """
        if any(entry.begun for entry in self._open):
            with self._condition:
                waiting = min(PACE_FACTOR * away, MAX_PACE_S)
                self._condition.wait_for(lambda: any(e.ready and not e.begun for e in self._open), waiting)

    def _begin(self, request: Request) -> None:
        entry = self._add(_Open())
        entry.exchange = self._service.open(request, lambda _: self._fresh.append(entry))
        if entry.exchange.finished:
            # Nobody has announced it.
            self._fresh.append(entry)

    def _add(self, entry: _Open) -> _Open:
        """It is the last in Java's order."""
        entry.place = len(self._open)
        self._open.append(entry)
        return entry

    def _reset(self, running: int) -> None:
        """Aborts what runs. `running` requests that Java still believes in are answered with an error."""
        for entry in self._open:
            entry.place = -1
            if not isinstance(entry, _Lost):
                entry.exchange.abort()
        if self._open:
            log.warning("rolling batch reset: %d requests aborted, %d expected by the host", len(self._open), running)
        self._open.clear()
        self._fresh.clear()
        for _ in range(running):
            self._fresh.append(self._add(_Lost()))

    def _notify(self) -> None:
        """Called after each step, when there may be new records."""
        if self._fresh:
            with self._condition:
                self._condition.notify()
