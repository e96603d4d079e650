"""One life of an engine, seen from the host: its process and what belongs to it, the channel, what runs in it.

start --> the process ends, by itself or killed --> what it started is ended too --> nothing of it is left: `gone`
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from ..adapters.adapter import Adapter
from ..engine import EngineStats, Sink
from ..errors import LmiError, UnavailableError
from ..options.lmcache import naming_lmcache
from ..options.settings import Settings
from .channel import Channel
from .ending.exit_report import describe_exit
from .group import PROCESS_GROUP, end_group
from .messages import Abort, BadMessage, FromEngine, Start

__all__ = ["SCRATCH", "EngineChild", "engine_environment", "lmcache_environment"]

log = logging.getLogger(__name__)

SCRATCH = "LMI_ENGINE_SCRATCH"
"""The environment variable with the engine's folder for sockets and the like."""
EXIT_TIMEOUT_S = 10.0
"""Seconds that an engine's process has to end by itself."""


class EngineChild:
    """The engine's process, the channel to it, and the sinks of what runs in it."""

    def __init__(
        self,
        settings: Settings,
        adapters: tuple[Adapter, ...] = (),
        environment: Mapping[str, str] | None = None,
        output: int | None = None,
    ) -> None:
        """`environment`: what its process has there unless this one's says otherwise; `output`: the descriptor of its
        standard output."""
        ours, theirs = socket.socketpair()
        # For sockets, whose paths may not be long.
        self._scratch = tempfile.mkdtemp(prefix="lmi-", dir="/tmp" if len(tempfile.gettempdir()) > 50 else None)
        given = {**(environment or {}), **engine_environment(), **lmcache_environment(settings)}
        command = [sys.executable, "-m", "lmi.model.process.engine_main", str(theirs.fileno())]
        self._process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            env={**given, SCRATCH: self._scratch},
            **PROCESS_GROUP,
        )
        theirs.close()
        self.channel: Channel[FromEngine] = Channel(ours, FromEngine)
        self.sinks: dict[int, Sink] = {}
        self.cause: LmiError | None = None
        self.served = False
        """Whether a generation has completed."""
        self.stats = EngineStats()
        """How busy it was when it last reported."""
        self.messages_received = 0
        """How many messages have been received from it."""
        self.gone = threading.Event()
        """Set when all processes of the engine have ended."""
        self._reaping = threading.Lock()
        threading.Thread(target=self._reap, name="lmi-reap", daemon=True).start()
        if settings.engine_stall_timeout:
            watching = threading.Thread(
                target=self._watch, args=(settings.engine_stall_timeout,), name="lmi-stall", daemon=True
            )
            watching.start()
        try:
            self.channel.send(Start(settings, adapters))
        except OSError:
            log.debug("the engine's process ended at once")

    @property
    def process_id(self) -> int:
        """The engine's process."""
        return self._process.pid

    def first_message(self, limit: float | None) -> FromEngine | BadMessage | None:
        """What it says first, once it is ready or cannot start; None where it ends before, as after `limit` seconds."""
        timer = None
        if limit is not None:
            late = UnavailableError(f"the engine was not ready after {limit:.0f} s")
            timer = threading.Timer(limit, self.fail, [late])
            timer.daemon = True
            timer.start()
        try:
            return self.channel.receive()
        except BaseException:
            # A signal to this process.
            self.fail(UnavailableError("the server is shutting down"))
            self.end()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def abort(self, numbers: tuple[int, ...]) -> None:
        """Ends generations in the engine; those that have not been sent yet are not sent."""
        try:
            if told := self.channel.withdraw(numbers):
                self.channel.post(Abort(tuple(told)))
        except OSError:
            log.debug("abort: the engine has just ended")

    def fail(self, cause: LmiError) -> None:
        """Kills the engine's process, for `cause`."""
        if self.cause is None:
            self.cause = cause
        with self._reaping, contextlib.suppress(ProcessLookupError):
            # Until it has been waited for, its number is nobody else's.
            if self._process.returncode is None:
                os.kill(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Closes the channel, at which the process ends by itself, or is killed."""
        self.channel.close()
        if not self.gone.wait(EXIT_TIMEOUT_S):
            self.fail(UnavailableError("the engine's process did not end by itself"))
            # Somebody who waits in the kernel, for a device that does not answer, cannot even be killed.
            if not self.gone.wait(2 * EXIT_TIMEOUT_S):
                log.critical("processes of the engine cannot be killed; they keep their memory")

    def _reap(self) -> None:
        """Waits for the process's end; then what it has started goes too, for that would hold the channel open."""
        process = self._process
        cause = "the engine's process ended"
        with contextlib.suppress(ChildProcessError):
            ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            if ended is not None:
                code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                cause = f"the engine's process ended {describe_exit(code)}"
        if self.cause is None:
            self.cause = UnavailableError(cause)
        end_group(process.pid)
        with self._reaping:
            process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self.gone.set()

    def _watch(self, limit: float) -> None:
        """Kills an engine that has work and sends nothing for `limit` seconds.

        It counts its own rounds instead of looking at a clock: if this process is stopped for a while, which engines
        are then too, one round is all that passes.
        """
        rounds = 10
        seen, quiet = 0, 0
        while not self.gone.wait(limit / rounds):
            quiet = quiet + 1 if self.sinks and self.messages_received == seen else 0
            seen = self.messages_received
            if quiet > rounds:
                waiting = len(self.sinks)
                log.critical(
                    "the engine has been silent for %g s with %d requests in flight: killing it", limit, waiting
                )
                self.fail(
                    UnavailableError(f"the engine has made no step for {limit:g} s (option.engine_stall_timeout)")
                )
                return


def engine_environment() -> dict[str, str]:
    """The environment of the engine's process: this one's, with everything importable here importable there."""
    environment = dict(os.environ)
    paths = [path or str(Path.cwd()) for path in sys.path]
    environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    return environment


def lmcache_environment(settings: Settings) -> dict[str, str]:
    """What the engine's process must have from its start where the options ask for LMCache: all of its processes are to
    make the same hash of a prefix, by which the cache is found.
    """
    if naming_lmcache(settings.engine_arguments) is None:
        return {}
    file = settings.lmcache_config_file
    return {"PYTHONHASHSEED": "0", **({} if file is None else {"LMCACHE_CONFIG_FILE": file})}
