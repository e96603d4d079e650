"""The engine's process: `python -m lmi.model.process.engine_main FD`, FD being one end of a socket pair
(model/process/client.py).

    intake thread    messages from the host -> Backend.prepare -> inbox    (with images: on other threads, prepare.py)
                     held back: -> Rendered;  Release -> inbox
    main thread      inbox -> Backend.add;  while busy: Backend.step -> one Step message

The process ends when the backend has failed, and when the host goes away, whatever state either is in, and takes
with it what the backend has started. While it has work, and makes steps, it sends a
message every second: the host notices when none comes.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import sys
import threading
import time
from collections import deque
from typing import Any

from ..engine import Backend, EngineStats, load_backend
from ..errors import GenerationError, LmiError, OverloadedError, RequestError, StartError
from ..events import EngineEvent, Failed, Rendered
from ..heap import freeze
from ..log import RequestIds, cause, show_content
from ..log_filters import configure, withhold
from ..options.image_rules import ImageRules
from ..options.model_dir import check_model
from .crash_report import crash_at_once, crash_at_once_too
from .exit import closing, end_now, end_with_host, terminated, watch_host
from .exit_report import report_exit_to, shutting_down
from .messages import (
    ENCODE_ERRORS,
    Abort,
    Add,
    BadMessage,
    Channel,
    EngineFailed,
    Ready,
    Release,
    Start,
    Stats,
    Step,
    ToEngine,
    sendable,
)
from .prepare import RequestPreparer
from .start_errors import start_error
from .token_budget import TokenBudget

__all__ = ["EngineProcess", "main"]

log = logging.getLogger(__name__)

STATS_INTERVAL_S = 1.0
"""Seconds between two messages to the host about how busy the engine is."""
HEARTBEAT_S = 1.0
"""Seconds after which an engine that makes steps sends a message, though they bring nothing."""
IDLE_HEARTBEAT_S = 30.0
"""The same, at most, for one that has nothing to do: requests may still be in preparation."""


class EngineProcess:
    """Drives one backend for the host at the other end of `channel`."""

    def __init__(
        self,
        channel: Channel[ToEngine],
        backend: Backend,
        rules: ImageRules,
        max_tokens: int | None = None,
        stall_timeout: float = 0.0,
    ) -> None:
        """`stall_timeout` is `Settings.engine_stall_timeout`."""
        self._channel = channel
        self._backend = backend
        self._stall_timeout = stall_timeout
        self._preparing_since: float | None = None
        self._preparer = RequestPreparer(backend, rules, self._ready, self._refuse)
        self._inbox: deque[tuple[int, Any]] = deque()
        self._held: dict[int, Any] = {}
        """What is prepared and waits for its Release."""
        self._aborts: deque[tuple[int, ...]] = deque()
        self._events: deque[tuple[int, EngineEvent]] = deque()
        self._token_budget = None if max_tokens is None else TokenBudget(max_tokens)
        self._wake = threading.Event()
        self._host_gone = False
        self._request_ids = RequestIds()
        self._stats_sent = 0.0
        """When stats were last sent; 0: the last ones said that the engine is idle."""
        self._stats_failed = False

    def run(self) -> None:
        """Serves until the host is gone; raises what the backend raises when it has failed."""
        threading.Thread(target=self._receive, name="lmi-intake", daemon=True).start()
        backend = self._backend
        idle = min(IDLE_HEARTBEAT_S, self._stall_timeout / 4) or None
        last_sent = 0.0
        while not self._host_gone:
            self._update_backend()
            events: list[tuple[int, EngineEvent]] = [*backend.step()] if backend.busy else []
            if self._token_budget is not None:
                self._token_budget.release_ended(events)
            while self._events:
                events.append(self._events.popleft())
            if events or ((now := time.monotonic()) - last_sent > HEARTBEAT_S and self._alive(now)):
                self._send(events)
                last_sent = time.monotonic()
            busy = backend.busy
            if busy or self._stats_sent:
                self._send_stats(busy)
            if not busy and not events:
                self._wake.wait(idle)
                self._wake.clear()

    def _send(self, events: list[tuple[int, EngineEvent]]) -> None:
        """Sends what a step brought. A generation whose event cannot be encoded fails alone."""
        try:
            self._channel.send(Step(events))
        except ENCODE_ERRORS:
            events, failed = sendable(events)
            for number, error in failed.items():
                log.error(
                    "request %s: generation %d: its output cannot be sent",
                    self._request_ids[number], number, exc_info=error,
                )  # fmt: skip
            self._end(tuple(failed))
            self._channel.send(Step(events))

    def _end(self, numbers: tuple[int, ...]) -> None:
        """Ends generations without a further event."""
        self._backend.abort(numbers)
        if self._token_budget is not None:
            self._token_budget.drop(numbers)

    def _alive(self, now: float) -> bool:
        """Whether requests are still being received: a prompt whose preparation never ends blocks all later ones."""
        since = self._preparing_since
        return since is None or now - since < self._stall_timeout

    def _send_stats(self, busy: bool) -> None:
        """Sends the host how busy the engine is: about once a second, and when it has become idle."""
        now = time.monotonic()
        if busy and now - self._stats_sent < STATS_INTERVAL_S:
            return
        self._stats_sent = now if busy else 0.0
        self._channel.send(Stats(self._stats() if busy else EngineStats()))

    def _stats(self) -> EngineStats:
        """How busy the engine is, where it can tell; no request depends on it."""
        try:
            stats = self._backend.stats()
            return EngineStats(
                running=int(stats.running), waiting=int(stats.waiting), cache_usage=float(stats.cache_usage)
            )
        except Exception:
            if not self._stats_failed:
                log.exception("how busy the engine is cannot be told; further failures are not logged")
            self._stats_failed = True
            return EngineStats()

    def _update_backend(self) -> None:
        """Adds to the backend, and aborts, what has been received since the last step."""
        # Counted first: a generation and the abort that follows it may both come in while the inbox is being emptied.
        aborts = len(self._aborts)
        if self._token_budget is not None:
            # What is about to end takes no room from what comes.
            for numbers in self._aborts.copy():
                self._token_budget.drop(numbers)
        while self._inbox:
            number, prepared = self._inbox.popleft()
            try:
                self._add(number, prepared)
            except SystemExit:
                raise
            except BaseException as error:  # noqa: BLE001 - logged there; libraries in Rust panic with one
                self._refuse(number, error)
        for _ in range(aborts):
            self._end(self._aborts.popleft())

    def _add(self, number: int, prepared: Any) -> None:
        if self._token_budget is None:
            self._backend.add(prepared)
            return
        self._token_budget.admit(number, self._backend.tokens(prepared))
        try:
            self._backend.add(prepared)
        except BaseException:
            self._token_budget.drop((number,))
            raise

    def _receive(self) -> None:
        """The intake thread: a request that fails here fails alone."""
        while (message := self._channel.receive()) is not None:
            if isinstance(message, Add):
                self._request_ids.add(message.number, message.generation.request_id)
                self._preparing_since = time.monotonic()
                self._preparer.take(message.number, message.generation)
                self._preparing_since = None
            elif isinstance(message, Release):
                for number in message.numbers:
                    if number in self._held:
                        self._ready(number, self._held.pop(number))
            elif isinstance(message, BadMessage):
                if message.number is None:
                    log.error("a message of the host's cannot be decoded: %s", message.error)
                else:
                    self._request_ids.add(message.number, message.request_id)
                    self._refuse(message.number, message.error)
            elif isinstance(message, Abort):
                # From then on none of them can become held.
                self._preparer.drop(message.numbers)
                for number in message.numbers:
                    self._held.pop(number, None)
                # Behind everything that was ready before, so that the generation it ends has been added by then.
                self._aborts.append(message.numbers)
                self._wake.set()
        self._host_gone = True
        self._wake.set()
        end_with_host()

    def _ready(self, number: int, prepared: Any, prompt: str | None = None) -> None:
        """Takes what is prepared; where its prompt's text is wanted, it is held back."""
        if prompt is None:
            self._inbox.append((number, prepared))
        else:
            self._held[number] = prepared
            self._events.append((number, Rendered(prompt)))
        self._wake.set()

    def _refuse(self, number: int, error: BaseException) -> None:
        if not isinstance(error, RequestError | OverloadedError):
            request_id = self._request_ids[number]
            log.error("request %s: generation %d failed before it started", request_id, number, exc_info=error)
        if not isinstance(error, LmiError):
            error = GenerationError(f"the engine refused the request: {error}")
        self._events.append((number, Failed.of(error)))
        self._wake.set()


def main() -> None:
    """Runs the engine's process to its end."""
    configure(own_process=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A background process of a terminal's session (child.py), which may not be stopped for what it logs (stty tostop).
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, terminated)
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    channel: Channel[ToEngine] = Channel(sock, ToEngine)
    start = channel.receive()
    if not isinstance(start, Start):
        return
    watch_host(sock)
    report_exit_to(lambda cause: channel.send(EngineFailed("GenerationError", cause)))
    backend: Backend | None = None
    try:
        try:
            # Before an engine's library is imported, which takes its time.
            check_model(start.settings)
            backend = load_backend(start.settings)
            # Whatever the engine: a guide may load xgrammar later.
            crash_at_once()
        except Exception as error:
            if not isinstance(error, StartError):
                log.exception("the engine could not start")
            refused = start_error(error)
            channel.send(EngineFailed(refused.kind, refused.message, refused.param))
            return
        # From here on there are requests.
        show_content(start.settings.log_requests == "true")
        withhold()
        channel.send(Ready(backend.info))
        freeze()
        try:
            settings = start.settings
            max_tokens = settings.limits.max_tokens_in_flight
            EngineProcess(channel, backend, settings.images, max_tokens, settings.engine_stall_timeout).run()
        except Exception as error:
            log.exception("the engine failed")
            # It cannot be closed in the ordinary way any more.
            backend = None
            channel.send(EngineFailed("GenerationError", f"the engine failed: {cause(error)}"))
    except OSError:
        log.info("the host is gone")
    finally:
        closing.set()
        shutting_down.set()
        if backend is not None:
            timer = threading.Timer(5.0, end_now)
            timer.daemon = True
            timer.start()
            with contextlib.suppress(Exception):
                backend.close()
        for stream in (sys.stdout, sys.stderr):
            # The host may be gone, and with it whoever reads them.
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        end_now()


if __name__ == "__main__":
    try:
        main()
    finally:
        end_now()
elif __name__ == "__mp_main__":
    # vLLM's core or one of its workers, spawned: multiprocessing imports its parent's main module first.
    crash_at_once_too()
