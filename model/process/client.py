"""The host's side of an engine: starts its process, hands it requests, brings back events, rebuilds it when it dies.

    down --start--> ready --process ends--> rebuilding --+--> ready
                                               ^         |
                                               +-- pause-+--> lost   (after too many tries in a row that failed)

The host's process must survive its engine (a worker that exits is not reliably restarted by DJL), so the engine has a
process of its own (model/process/child.py), and nothing it does can end this one. While it is rebuilt, requests are
answered at once with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

from ..engine import EngineInfo, EngineStats, Listener, Sink
from ..errors import GenerationError, StartError, UnavailableError
from ..events import EngineEvent, Failed
from ..generation import Generation
from ..options import Settings
from ..search.best_of import ranked
from ..text.prompt_pieces import whole
from .adapter_calls import AdapterCalls
from .channel import Channel, LoopReading
from .child import EngineChild
from .dispatch import Dispatcher
from .messages import (
    ENCODE_ERRORS,
    AdapterOutcome,
    Add,
    BadMessage,
    EngineFailed,
    FromEngine,
    Gather,
    Ready,
    Release,
    Scraped,
    Stats,
    Step,
    readable_step,
)  # fmt: skip
from .scrapes import Scrapes

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
        self,
        settings: Settings,
        *,
        pauses: Sequence[float] = REBUILD_PAUSES_S,
        tries: int = MAX_FAILED_REBUILDS,
        output: int | None = None,
    ) -> None:
        """`output`: the descriptor that takes what the engine writes to standard output; None: this process' own."""
        self._settings = settings
        self._pauses = pauses
        self._tries = tries
        self._output = output
        self.given_up: Callable[[str], None] = lambda _: None
        """Told why, on a thread of the engine's, when it is rebuilt no more. To be set before the start."""
        self._numbers = count(1)
        self._dispatcher = Dispatcher()
        self.adapters = AdapterCalls(self._channel, lambda: self._rebuild_timeout is not None)
        self._scrapes = Scrapes(self._channel)
        self.scrape = self._scrapes.ask
        self._lock = threading.Lock()
        self._child: EngineChild | None = None
        self._starting_child: EngineChild | None = None
        self._launched = False
        """Whether `start` finds a process that waits for it."""
        self._rebuild_timeout: float | None = None
        # Not an exception to raise again and again: each time it would keep the frames, and with them the request.
        self.down_reason = "the engine is not started"
        """Why it is down, or was last."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where steps are taken; None: on the engine's thread."""
        self._reading: LoopReading[FromEngine] | None = None
        self._closing = threading.Event()
        self._recent_deaths = 0
        self.deaths = 0
        self.rebuilds = 0
        self._ready_since = 0.0

    @property
    def healthy(self) -> bool:
        """Whether an engine is up."""
        return self._child is not None

    @property
    def running(self) -> int:
        """How many generations have been submitted and have not ended."""
        child = self._child
        return len(child.sinks) if child else 0

    @property
    def stats(self) -> EngineStats:
        """How busy the engine is."""
        child = self._child
        return child.stats if child else EngineStats()

    @property
    def process_id(self) -> int | None:
        """The engine's process, while one is up."""
        child = self._child
        return child.process_id if child else None

    def _channel(self) -> Channel[FromEngine] | None:
        child = self._child
        return child.channel if child else None

    def listen(self, listener: Listener) -> None:
        """Adds a listener."""
        self._dispatcher.listeners.append(listener)

    def launch(self) -> None:
        """Starts the engine's process, for whoever has something else to do before `start`; raises StartError."""
        try:
            self._starting_child = EngineChild(self._settings, self.adapters.for_start(), output=self._output)
        except OSError as error:
            raise StartError(f"the engine's process could not be started: {error}") from error
        self._launched = True

    def start(self) -> EngineInfo:
        """Starts the engine's process, if that is not done, and waits until it is ready; raises StartError."""
        began = time.monotonic()
        if not self._launched:
            self.launch()
        self._launched = False
        child = self._starting_child
        assert child is not None
        if self._closing.is_set():
            # It was not there yet when `close` looked.
            child.fail(UnavailableError("the server is shutting down"))
        # The first start is the host's to watch.
        first = child.first_message(self._rebuild_timeout)
        if not isinstance(first, Ready) or self._closing.is_set():
            child.end()
            if isinstance(first, EngineFailed):
                raise first.error
            raise StartError(f"{child.cause or 'its process ended'} before the engine was ready")
        with self._lock:
            self._child = child
            self._ready_since = time.monotonic()
        self.adapters.ready(first.adapter_faults)
        self._rebuild_timeout = self._rebuild_timeout or max(
            REBUILD_TIMEOUT_S, REBUILD_FACTOR * (self._ready_since - began)
        )
        threading.Thread(target=self._receive, args=(child,), name="lmi-engine", daemon=True).start()
        log.info("engine %s %s is ready, context %d tokens", first.info.engine, first.info.version, first.info.context)
        return first.info

    def submit(self, generation: Generation, sink: Sink) -> int:
        """Starts a generation; raises UnavailableError while there is no engine."""
        child = self._child
        if child is None:
            raise UnavailableError(self.down_reason)
        number = next(self._numbers)
        generation, sink = ranked(generation, whole(generation, sink))
        child.sinks[number] = sink
        try:
            child.channel.post(Add(number, generation))
        except OSError:
            # The receiving thread sees the same end and fails every sink, this one too unless it was faster.
            if child.sinks.pop(number, None) is not None:
                raise UnavailableError("the engine has just ended and is being rebuilt") from None
        except ENCODE_ERRORS as error:
            child.sinks.pop(number, None)
            raise GenerationError(f"the request could not be submitted to the engine: {error}") from error
        if self._child is not child and child.sinks.pop(number, None) is not None:
            raise UnavailableError(self.down_reason)
        return number

    def release(self, tickets: Sequence[int]) -> None:
        """Starts generations that are held back."""
        child = self._child
        if child is not None and (held := tuple(ticket for ticket in tickets if ticket in child.sinks)):
            # When it has just ended, their sinks are told so.
            with contextlib.suppress(OSError):
                child.channel.post(Release(held))

    def abort(self, tickets: Sequence[int]) -> None:
        """Ends generations without a further event."""
        child = self._child
        if child is None:
            return
        running = tuple(ticket for ticket in tickets if child.sinks.pop(ticket, None) is not None)
        if running:
            child.abort(running)

    def gather(self, seconds: float) -> None:
        """Has the text of streams gather."""
        child = self._child
        if child is not None:
            with contextlib.suppress(OSError):
                child.channel.post(Gather(seconds))

    def read_on(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Has steps taken on an event loop, as soon as the engine's thread has taken one more; None: on that again."""
        self._loop = loop
        if loop is None and self._reading is not None:
            self._reading.stop()

    def read_ready(self) -> None:
        """Takes what has come of the engine, on the event loop that takes its steps."""
        if (reading := self._reading) is not None:
            reading.receive()

    def deliver(self, sink: Sink, event: EngineEvent) -> None:
        """Delivers `event` to a sink that no step tells of it."""
        self._dispatcher.deliver(sink, event)

    def close(self) -> None:
        """Ends the engine; running requests get an error."""
        self._closing.set()
        self.read_on(None)
        for child in {self._child, self._starting_child}:
            if child is not None:
                child.cause = UnavailableError("the server is shutting down")
                if child is not self._child:
                    # Nothing runs on it, and one that still loads takes long to see that it is to end.
                    child.fail(child.cause)
                child.end()

    def _receive(self, child: EngineChild) -> None:
        """The engine's thread: hands events to their sinks until the channel ends."""
        try:
            while (message := child.channel.receive()) is not None and self._take(child, message):
                if (loop := self._loop) is not None:
                    reading = self._reading = LoopReading(loop, child.channel, partial(self._take, child))
                    if self._loop is loop and reading.run():
                        break
        except Exception:
            log.exception("reading from the engine's process failed")
        self._handle_exit(child)

    def _take(self, child: EngineChild, message: FromEngine | BadMessage) -> bool:
        """Takes what the engine's process says; whether it goes on."""
        child.messages_received += 1
        if isinstance(message, Step):
            self._dispatcher.step(message, child)
        elif isinstance(message, Stats):
            child.stats = message.stats
        elif isinstance(message, AdapterOutcome):
            self.adapters.settle(message)
        elif isinstance(message, Scraped):
            self._scrapes.settle(message)
        elif isinstance(message, EngineFailed):
            child.cause = UnavailableError(message.message)
            return False
        elif isinstance(message, BadMessage):
            if (readable := readable_step(message)) is None:
                log.error("what the engine's process sent cannot be decoded: %s", message.error)
                child.cause = UnavailableError("what the engine's process sent cannot be decoded")
                return False
            step, failed = readable
            log.error("the engine sent what cannot be decoded for generations %s: %s", failed, message.error)
            self._dispatcher.step(step, child)
            child.abort(tuple(failed))
        return True

    def _handle_exit(self, child: EngineChild) -> None:
        """The engine died: fails every request in flight, then rebuilds."""
        deadline = time.monotonic() + 1.0
        while child.cause is None and time.monotonic() < deadline:
            time.sleep(0.01)
        cause = child.cause or UnavailableError("the engine's process closed its channel")
        with self._lock:
            self.down_reason = f"{cause.message}; it is being rebuilt, try again later"
            self._child = None
        self.deaths += not self._closing.is_set()
        level = logging.INFO if self._closing.is_set() else logging.ERROR
        log.log(level, "the engine ended with %d requests in flight: %s", len(child.sinks), cause)
        self._dispatcher.fail(child, Failed.of(UnavailableError(cause.message)))
        self.adapters.fail(cause.message)
        self._scrapes.fail()
        child.end()
        if child.served or time.monotonic() - self._ready_since > STEADY_AFTER_S:
            self._recent_deaths = 0
        self._rebuild()

    def _rebuild(self) -> None:
        for failures in range(1, self._tries + 1):
            pause = self._pauses[min(self._recent_deaths, len(self._pauses) - 1)]
            self._recent_deaths += 1
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
                self.down_reason = f"the engine could not be rebuilt: {error}{more}"
        log.critical("giving up on the engine after %d failed rebuilds: %s", self._tries, self.down_reason)
        self.given_up(self.down_reason)

    def pause(self, seconds: float) -> bool:
        """Waits before a rebuild; whether there is to be none, as the engine is being closed."""
        return self._closing.wait(seconds)
