"""The host's side of an engine: starts its process, hands it requests, brings back events, rebuilds it when it dies.

    down --start--> ready --process ends--> rebuilding --+--> ready
                                               ^         |
                                               +-- pause-+--> lost   (after too many tries in a row that failed)

The host's process must survive its engine (a worker that exits is not reliably restarted by DJL), so the engine has a
process of its own (model/process/child.py), and nothing it does can end this one. While it is rebuilt, requests are
answered at once with the reason.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from itertools import count

from ..engine import EngineInfo, EngineStats, Listener, Sink
from ..errors import GenerationError, LmiError, StartError, UnavailableError, error_of_kind
from ..events import Delta, Event, Failed
from ..generation import Generation
from ..options import Settings
from ..search.best_of import ranked
from .child import EngineChild
from .messages import Add, EngineFailed, Ready, Stats, Step

__all__ = ["EngineClient"]

log = logging.getLogger(__name__)

REBUILD_PAUSES_S = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds before each rebuild; the last one repeats. They begin anew after an engine that was of use: one that answered
a request, or ran for STEADY_AFTER_S seconds. So they grow where an engine does not come up, or dies as soon as it
has."""
MAX_FAILED_REBUILDS = 10
"""Rebuilds in a row that may fail before the engine is given up."""
STEADY_AFTER_S = 120.0
REBUILD_TIMEOUT_S = 600.0
REBUILD_FACTOR = 10.0
"""A rebuild may take so many seconds, or so many times what the first start took if that is more; then it is ended as
a failure. Unlike the first start, no host watches over it."""


class EngineClient:
    """An Engine (model/engine.py) whose backend runs in another process. All methods may be called from any thread."""

    def __init__(
        self, settings: Settings, *, pauses: Sequence[float] = REBUILD_PAUSES_S, tries: int = MAX_FAILED_REBUILDS
    ) -> None:
        self._settings = settings
        self._pauses = pauses
        self._tries = tries
        self._numbers = count(1)
        self._listeners: list[Listener] = []
        self._telling = threading.Lock()
        """Held while sinks and listeners are told something: once a step."""
        self._lock = threading.Lock()
        self._link: EngineChild | None = None
        self._starting: EngineChild | None = None
        self._launched = False
        """Whether `start` finds a process that waits for it."""
        self._limit: float | None = None
        # Not an exception to raise again and again: each time it would keep the frames, and with them the request.
        self._why_down = "the engine is not started"
        self._closing = threading.Event()
        self._deaths = 0
        self.deaths = 0
        self.rebuilds = 0
        self._since = 0.0

    @property
    def healthy(self) -> bool:
        """Whether an engine is up."""
        return self._link is not None

    @property
    def running(self) -> int:
        """How many generations have been submitted and have not ended."""
        link = self._link
        return len(link.sinks) if link else 0

    @property
    def stats(self) -> EngineStats:
        """How busy the engine is."""
        link = self._link
        return link.stats if link else EngineStats()

    @property
    def process_id(self) -> int | None:
        """The engine's process, while one is up."""
        link = self._link
        return link.process_id if link else None

    def listen(self, listener: Listener) -> None:
        """Adds a listener."""
        self._listeners.append(listener)

    def launch(self) -> None:
        """Starts the engine's process, for whoever has something else to do before `start`; raises StartError."""
        try:
            self._starting = EngineChild(self._settings)
        except OSError as error:
            raise StartError(f"the engine's process could not be started: {error}") from error
        self._launched = True

    def start(self) -> EngineInfo:
        """Starts the engine's process, if that is not done, and waits until it is ready; raises StartError."""
        began = time.monotonic()
        if not self._launched:
            self.launch()
        self._launched = False
        link = self._starting
        assert link is not None
        if self._closing.is_set():
            # It was not there yet when `close` looked.
            link.fail(UnavailableError("the server is shutting down"))
        patience = self._patience(link)
        try:
            first = link.channel.receive()
        except BaseException:
            # A signal to this process.
            link.fail(UnavailableError("the server is shutting down"))
            link.end()
            raise
        finally:
            patience.cancel()
        if not isinstance(first, Ready) or self._closing.is_set():
            link.end()
            if isinstance(first, EngineFailed):
                raise error_of_kind(first.kind, first.message, first.param)
            raise StartError(f"{link.cause or 'its process ended'} before the engine was ready")
        with self._lock:
            self._link = link
            self._since = time.monotonic()
        self._limit = self._limit or max(REBUILD_TIMEOUT_S, REBUILD_FACTOR * (self._since - began))
        threading.Thread(target=self._receive, args=(link,), name="lmi-engine", daemon=True).start()
        log.info("engine %s %s is ready, context %d tokens", first.info.engine, first.info.version, first.info.context)
        return first.info

    def _patience(self, link: EngineChild) -> threading.Timer:
        """Ends a rebuild that takes too long. The first start is the host's to watch."""
        limit = self._limit or threading.TIMEOUT_MAX
        timer = threading.Timer(limit, link.fail, [UnavailableError(f"the engine was not ready after {limit:.0f} s")])
        timer.daemon = True
        if self._limit:
            timer.start()
        return timer

    def submit(self, generation: Generation, sink: Sink) -> int:
        """Starts a generation; raises UnavailableError while there is no engine."""
        link = self._link
        if link is None:
            raise UnavailableError(self._why_down)
        number = next(self._numbers)
        generation, sink = ranked(generation, sink)
        link.sinks[number] = sink
        try:
            link.channel.post(Add(number, generation))
        except OSError:
            # The receiving thread sees the same end and fails every sink, this one too unless it was faster.
            if link.sinks.pop(number, None) is not None:
                raise UnavailableError("the engine has just ended and is being rebuilt") from None
        except (TypeError, ValueError, OverflowError) as error:
            link.sinks.pop(number, None)
            raise GenerationError(f"the request could not be submitted to the engine: {error}") from error
        if self._link is not link and link.sinks.pop(number, None) is not None:
            raise UnavailableError(self._why_down)
        return number

    def abort(self, tickets: Sequence[int]) -> None:
        """Ends generations without a further event."""
        link = self._link
        if link is None:
            return
        running = tuple(ticket for ticket in tickets if link.sinks.pop(ticket, None) is not None)
        if running:
            link.abort(running)

    def fail(self, tickets: Sequence[int], error: LmiError) -> None:
        """Ends generations with `error`. Where there is no engine they have ended already."""
        link = self._link
        if link is None:
            return
        failed = Failed.of(error)
        with self._telling:
            running = [(ticket, sink) for ticket in tickets if (sink := link.sinks.pop(ticket, None)) is not None]
            for _, sink in running:
                sink(failed)
            if running:
                self._notify()
        if running:
            link.abort(tuple(ticket for ticket, _ in running))

    def tell(self, sink: Sink, event: Event) -> None:
        """Gives `event` to a sink whose generation was not taken."""
        with self._telling:
            sink(event)

    def close(self) -> None:
        """Ends the engine for good; what runs gets an error."""
        self._closing.set()
        for link in {self._link, self._starting}:
            if link is not None:
                link.cause = UnavailableError("the server is shutting down")
                if link is not self._link:
                    # Nothing runs on it, and one that still loads takes long to see that it is to end.
                    link.fail(link.cause)
                link.end()

    def _receive(self, link: EngineChild) -> None:
        """The engine's thread: hands events to their sinks until the channel ends."""
        try:
            while (message := link.channel.receive()) is not None:
                link.heard += 1
                if isinstance(message, Step):
                    with self._telling:
                        self._hand_out(message, link)
                        if message.events:
                            self._notify()
                elif isinstance(message, Stats):
                    link.stats = message.stats
                elif isinstance(message, EngineFailed):
                    link.cause = UnavailableError(message.message)
                    break
        except Exception:
            log.exception("reading from the engine's process failed")
        self._ended(link)

    def _hand_out(self, step: Step, link: EngineChild) -> None:
        sinks = link.sinks
        for number, event in step.events:
            sink = sinks.get(number)
            if sink is None:
                continue
            if isinstance(event, Failed):
                sinks.pop(number, None)
            elif isinstance(event, Delta) and event.finish and event.finish.last:
                sinks.pop(number, None)
                link.served = True
            sink(event)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def _ended(self, link: EngineChild) -> None:
        """The engine died: tells everything in flight, then rebuilds."""
        deadline = time.monotonic() + 1.0
        while link.cause is None and time.monotonic() < deadline:
            time.sleep(0.01)
        cause = link.cause or UnavailableError("the engine's process closed its channel")
        with self._lock:
            self._why_down = f"{cause.message}; it is being rebuilt, try again later"
            self._link = None
        self.deaths += not self._closing.is_set()
        level = logging.INFO if self._closing.is_set() else logging.ERROR
        log.log(level, "the engine ended with %d requests in flight: %s", len(link.sinks), cause)
        failed = Failed.of(UnavailableError(cause.message))
        try:
            with self._telling:
                for number in list(link.sinks):
                    if (sink := link.sinks.pop(number, None)) is not None:
                        sink(failed)
                self._notify()
        except Exception:
            log.exception("reporting the engine's end to its requests failed")
        link.end()
        if link.served or time.monotonic() - self._since > STEADY_AFTER_S:
            self._deaths = 0
        self._rebuild()

    def _rebuild(self) -> None:
        for failures in range(1, self._tries + 1):
            pause = self._pauses[min(self._deaths, len(self._pauses) - 1)]
            self._deaths += 1
            if self.pause(pause):
                return
            try:
                self.start()
                self.rebuilds += 1
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, the next try may do
                if self._closing.is_set():
                    return
                log.error("rebuilding the engine failed (%d of %d): %s", failures, self._tries, error)
                more = "" if failures == self._tries else "; it is tried again"
                self._why_down = f"the engine could not be rebuilt: {error}{more}"
        log.critical("giving up on the engine after %d failed rebuilds: %s", self._tries, self._why_down)

    def pause(self, seconds: float) -> bool:
        """Waits before a rebuild; whether there is to be none, as the engine is being closed."""
        return self._closing.wait(seconds)
