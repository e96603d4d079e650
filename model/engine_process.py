"""The engine's process: `python -m lmi.model.engine_process FD`, FD being one end of a socket pair (model/remote.py).

    intake thread    messages from the host -> Backend.prepare -> inbox    (with images: on other threads, intake.py)
    main thread      inbox -> Backend.add;  while busy: Backend.step -> one Step message

The process ends when the backend is beyond use, and when the host goes away, whatever state either is in.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections import deque
from typing import Any

from msgspec import structs

from . import startup
from .engine import Backend, load_backend
from .errors import GenerationError, LmiError, MemoryShortError, OverloadedError, RequestError, StartError, one_line
from .events import Event, Failed
from .image_rules import ImageRules
from .in_flight import InFlight
from .intake import Intake
from .wire import Abort, Add, Broken, Channel, Ready, Setup, Step, ToEngine

__all__ = ["EngineProcess", "main"]

log = logging.getLogger(__name__)

_OUT_OF_MEMORY = (
    "out of memory",
    "No available memory for the cache blocks",
    "can't allocate memory",
    "Cannot allocate memory",
)


def start_error(error: BaseException) -> StartError:
    """What a backend's failure to start is reported as, with the cause in one line."""
    if isinstance(error, StartError):
        return error
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    text = " <- ".join(one_line(str(part)) or type(part).__name__ for part in chain)
    short = isinstance(error, MemoryError) or any(sign in text for sign in _OUT_OF_MEMORY)
    return (MemoryShortError if short else StartError)(f"the engine could not start: {text}")


class EngineProcess:
    """Drives one backend for the host at the other end of `channel`."""

    def __init__(
        self, channel: Channel[ToEngine], backend: Backend, rules: ImageRules, most_tokens: int | None = None
    ) -> None:
        self._channel = channel
        self._backend = backend
        self._intake = Intake(backend, rules, self._ready, self._refuse)
        self._inbox: deque[tuple[int, Any]] = deque()
        self._aborts: deque[tuple[int, ...]] = deque()
        self._events: deque[tuple[int, Event]] = deque()
        self._flight = None if most_tokens is None else InFlight(most_tokens)
        self._work = threading.Event()
        self._gone = False

    def run(self) -> None:
        """Serves until the host is gone; raises what the backend raises when it is beyond use."""
        threading.Thread(target=self._take_in, name="lmi-intake", daemon=True).start()
        backend = self._backend
        while not self._gone:
            self._start_and_end()
            events = backend.step() if backend.busy else []
            if self._flight is not None:
                self._flight.take_note(events)
            while self._events:
                events.append(self._events.popleft())
            if events:
                self._channel.send(Step(events))
            elif not backend.busy:
                self._work.wait()
                self._work.clear()

    def _start_and_end(self) -> None:
        """Hands the backend what has come in since the last step."""
        # Counted first: a generation and the abort that follows it may both come in while the inbox is being emptied.
        aborts = len(self._aborts)
        if self._flight is not None:
            # What is about to end takes no room from what comes.
            for numbers in self._aborts.copy():
                self._flight.drop(numbers)
        while self._inbox:
            number, prepared = self._inbox.popleft()
            try:
                self._add(number, prepared)
            except Exception as error:  # noqa: BLE001 - logged there
                self._refuse(number, error)
        for _ in range(aborts):
            numbers = self._aborts.popleft()
            self._backend.abort(numbers)
            if self._flight is not None:
                self._flight.drop(numbers)

    def _add(self, number: int, prepared: Any) -> None:
        if self._flight is None:
            self._backend.add(prepared)
            return
        self._flight.admit(number, self._backend.tokens(prepared))
        try:
            self._backend.add(prepared)
        except BaseException:
            self._flight.drop((number,))
            raise

    def _take_in(self) -> None:
        """The intake thread: a request that fails here fails alone."""
        while (message := self._channel.receive()) is not None:
            if isinstance(message, Add):
                self._intake.take(message.number, message.generation)
            elif isinstance(message, Abort):
                self._intake.drop(message.numbers)
                # Behind everything that was ready before, so that the generation it ends has been added by then.
                self._aborts.append(message.numbers)
                self._work.set()
        self._gone = True
        self._work.set()
        end_with_host()

    def _ready(self, number: int, prepared: Any) -> None:
        self._inbox.append((number, prepared))
        self._work.set()

    def _refuse(self, number: int, error: Exception) -> None:
        if not isinstance(error, LmiError):
            log.error("generation %d failed before it started", number, exc_info=error)
            error = GenerationError(f"the engine refused the request: {error}")
        elif not isinstance(error, RequestError | OverloadedError):
            log.error("generation %d failed before it started: %s", number, error)
        self._events.append((number, Failed.of(error)))
        self._work.set()


def end_with_host(patience: float = 3.0) -> None:
    """Ends this process and its children: politely at first, for sure after `patience` seconds."""
    threading.Timer(patience, lambda: os.killpg(os.getpgid(0), signal.SIGKILL)).start()
    os.kill(os.getpid(), signal.SIGTERM)


def _terminated(_signal: int, _frame: object) -> None:
    raise SystemExit(0)


def main() -> None:
    """Runs the engine's process to its end."""
    startup.mark("interpreter, imports of ours")
    logging.basicConfig(
        level=os.environ.get("LMI_LOG_LEVEL", "INFO").upper(), format="%(levelname)s::%(name)s %(message)s"
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminated)
    sock = socket.socket(fileno=int(sys.argv[1]))
    sock.set_inheritable(False)
    channel: Channel[ToEngine] = Channel(sock, ToEngine)
    setup = channel.receive()
    if not isinstance(setup, Setup):
        return
    backend: Backend | None = None
    try:
        try:
            startup.mark("settings")
            backend = load_backend(setup.settings)
            startup.mark("tokenizer, templates")
        except Exception as error:
            if not isinstance(error, StartError):
                log.exception("the engine could not start")
            refused = start_error(error)
            channel.send(Broken(refused.kind, refused.message, refused.param))
            return
        channel.send(Ready(structs.replace(backend.info, startup=startup.stages())))
        # What start-up allocated stays: collections need not look at it again.
        gc.collect()
        gc.freeze()
        try:
            limits = setup.settings.limits
            EngineProcess(channel, backend, setup.settings.images, limits.max_tokens_in_flight).run()
        except Exception as error:
            log.exception("the engine is beyond use")
            channel.send(Broken("GenerationError", f"the engine failed: {error}"))
    except OSError:
        log.info("the host is gone")
    finally:
        if backend is not None:
            threading.Timer(5.0, lambda: os.killpg(os.getpgid(0), signal.SIGKILL)).start()
            backend.close()
        sys.stdout.flush()
        sys.stderr.flush()
        # Engines leave threads behind that would keep the process alive.
        os._exit(0)


if __name__ == "__main__":
    main()
