"""The host's side of an engine: starts its process, hands it requests, brings back events, rebuilds it when it dies.

    down --start--> ready --process ends--> rebuilding --+--> ready
                                               ^         |
                                               +-- pause-+--> lost   (after too many tries in a row that failed)

The host's process must survive its engine (a worker that exits is not reliably restarted by DJL), so the engine has a
process of its own, and nothing it does can end this one. While it is rebuilt, requests are answered at once with the
reason.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from .engine import EngineInfo, Listener, Sink
from .errors import LmiError, StartError, UnavailableError, error_of_kind
from .events import Delta, Failed
from .generation import Generation
from .options import Settings
from .ranking import ranked
from .wire import Abort, Add, Broken, Channel, FromEngine, Ready, Setup, Step

__all__ = ["RemoteEngine"]

log = logging.getLogger(__name__)

PAUSES = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds before each rebuild; the last one repeats."""
TRIES = 10
"""Rebuilds in a row that may fail before the engine is given up."""
STEADY = 120.0
"""Seconds after which an engine that ran is trusted again and the pauses start anew."""


class _Link:
    """One life of the engine: its process, the channel to it, and the sinks of what runs in it."""

    def __init__(self, settings: Settings) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "lmi.model.engine_process", str(theirs.fileno())]
        self.process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=engine_environment(),
        )
        theirs.close()
        self.channel: Channel[FromEngine] = Channel(ours, FromEngine)
        self.sinks: dict[int, Sink] = {}
        self.sending = threading.Lock()
        self.telling = threading.Lock()
        """Held while sinks are told something: once a step."""
        self.cause: LmiError | None = None
        threading.Thread(target=self._reap, name="lmi-reap", daemon=True).start()
        try:
            self.channel.send(Setup(settings))
        except OSError:
            log.debug("the engine's process ended at once")

    def _reap(self) -> None:
        """Waits for the process's end; then its children go too, or they would hold the channel open."""
        code = self.process.wait()
        self._kill_group()
        if self.cause is None:
            self.cause = UnavailableError(f"the engine's process ended {_ending(code)}")

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def abort(self, numbers: tuple[int, ...]) -> None:
        """Has the engine end generations."""
        try:
            with self.sending:
                self.channel.send(Abort(numbers))
        except OSError:
            log.debug("abort: the engine has just ended")

    def end(self, patience: float = 10.0) -> None:
        """Closes the channel, at which the process ends by itself, or is killed after `patience` seconds."""
        self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        self._kill_group()
        self.process.wait()


def engine_environment() -> dict[str, str]:
    """The environment of the engine's process: this one's, with everything importable here importable there."""
    environment = dict(os.environ)
    paths = [path or str(Path.cwd()) for path in sys.path]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    return environment


def _ending(code: int) -> str:
    return f"by signal {signal.Signals(-code).name}" if code < 0 else f"with code {code}"


class RemoteEngine:
    """An Engine (model/engine.py) whose backend runs in another process. All methods may be called from any thread."""

    def __init__(self, settings: Settings, *, pauses: Sequence[float] = PAUSES, tries: int = TRIES) -> None:
        self._settings = settings
        self._pauses = pauses
        self._tries = tries
        self._numbers = count(1)
        self._listeners: list[Listener] = []
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._why_down: LmiError = UnavailableError("the engine is not started")
        self._closing = threading.Event()
        self._deaths = 0
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
    def process_id(self) -> int | None:
        """The engine's process, while one is up."""
        link = self._link
        return link.process.pid if link else None

    def listen(self, listener: Listener) -> None:
        """Adds a listener."""
        self._listeners.append(listener)

    def start(self) -> EngineInfo:
        """Starts the engine's process and waits until it is ready; raises StartError."""
        link = _Link(self._settings)
        first = link.channel.receive()
        if not isinstance(first, Ready) or self._closing.is_set():
            link.end()
            if isinstance(first, Broken):
                raise error_of_kind(first.kind, first.message, first.param)
            raise StartError(str(link.cause or "the engine's process ended before it was ready"))
        with self._lock:
            self._link = link
            self._since = time.monotonic()
        threading.Thread(target=self._receive, args=(link,), name="lmi-engine", daemon=True).start()
        log.info("engine %s %s is ready, context %d tokens", first.info.engine, first.info.version, first.info.context)
        return first.info

    def submit(self, generation: Generation, sink: Sink) -> int:
        """Starts a generation; raises UnavailableError while there is no engine."""
        link = self._link
        if link is None:
            raise self._why_down
        number = next(self._numbers)
        generation, sink = ranked(generation, sink)
        link.sinks[number] = sink
        try:
            with link.sending:
                link.channel.send(Add(number, generation))
        except OSError:
            # The receiving thread sees the same end and fails every sink, this one too unless it was faster.
            if link.sinks.pop(number, None) is not None:
                raise UnavailableError("the engine has just ended and is being rebuilt") from None
        if self._link is not link and link.sinks.pop(number, None) is not None:
            raise self._why_down
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
        with link.telling:
            running = [(ticket, sink) for ticket in tickets if (sink := link.sinks.pop(ticket, None)) is not None]
            for _, sink in running:
                sink(failed)
        if running:
            self._notify()
            link.abort(tuple(ticket for ticket, _ in running))

    def close(self) -> None:
        """Ends the engine for good; what runs gets an error."""
        self._closing.set()
        link = self._link
        if link is not None:
            link.cause = UnavailableError("the server is shutting down")
            link.end()

    def _receive(self, link: _Link) -> None:
        """The engine's thread: hands events to their sinks until the channel ends."""
        try:
            while (message := link.channel.receive()) is not None:
                if isinstance(message, Step):
                    with link.telling:
                        self._hand_out(message, link.sinks)
                    self._notify()
                elif isinstance(message, Broken):
                    link.cause = UnavailableError(message.message)
        except Exception:
            log.exception("the engine's channel is beyond use")
        self._ended(link)

    def _hand_out(self, step: Step, sinks: dict[int, Sink]) -> None:
        for number, event in step.events:
            sink = sinks.get(number)
            if sink is None:
                continue
            if isinstance(event, Failed) or (isinstance(event, Delta) and event.finish and event.finish.last):
                sinks.pop(number, None)
            sink(event)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def _ended(self, link: _Link) -> None:
        """The engine died: tells everything in flight, then rebuilds."""
        deadline = time.monotonic() + 1.0
        while link.cause is None and time.monotonic() < deadline:
            time.sleep(0.01)
        cause = link.cause or UnavailableError("the engine's process closed its channel")
        with self._lock:
            self._why_down = UnavailableError(f"{cause.message}; it is being rebuilt, try again later")
            self._link = None
        level = logging.INFO if self._closing.is_set() else logging.ERROR
        log.log(level, "the engine ended with %d requests in flight: %s", len(link.sinks), cause)
        failed = Failed.of(UnavailableError(cause.message))
        with link.telling:
            for number in list(link.sinks):
                if (sink := link.sinks.pop(number, None)) is not None:
                    sink(failed)
        self._notify()
        link.end()
        if time.monotonic() - self._since > STEADY:
            self._deaths = 0
        self._rebuild()

    def _rebuild(self) -> None:
        for failures in range(1, self._tries + 1):
            pause = self._pauses[min(self._deaths, len(self._pauses) - 1)]
            self._deaths += 1
            if self._closing.wait(pause):
                return
            try:
                self.start()
                return
            except LmiError as error:
                if self._closing.is_set():
                    return
                log.error("rebuilding the engine failed (%d of %d): %s", failures, self._tries, error)
                self._why_down = UnavailableError(f"the engine could not be rebuilt: {error.message}")
        log.critical("the engine is given up after %d tries: %s", self._tries, self._why_down)
