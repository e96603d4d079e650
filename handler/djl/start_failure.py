"""A start that fails in async mode.

Told of a failure, Java's thread that starts the worker closes the connection twice, holding the lock of PyProcess;
netty's thread has seen it close and waits for that lock in `restartPythonWorkerAsyncMode`, and the second close waits
for netty's thread (DJL Serving 0.36.0, PyProcess.java and Connection.java; 0.34.0 too). So a first start never ends,
without a port and without a word, and a later one leaves Java with a thread less. No order of answering and ending
prevents it: Java must not be told.

    the host has no port open    it is starting, and in other modes would exit with status 1: it is ended
    the host serves              the worker counts as started, refuses requests with the cause, and tries again
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["end_host", "listens"]

log = logging.getLogger(__name__)

LOG_TIME_S: Final = 1.0
"""Java prints the worker's lines: so long it has for the last ones."""
EXIT_TIMEOUT_S: Final = 10.0
_LISTEN: Final = "0A"
"""A socket's state in /proc/PID/net/tcp (proc(5))."""


def listens(pid: int) -> bool:
    """Whether a process listens on a TCP port. True too where /proc does not tell: nobody is ended on a guess."""
    try:
        sockets = set(_sockets(pid))
        return any(state == _LISTEN and inode in sockets for state, inode in _tcp_sockets(pid))
    except OSError:
        return True


def end_host(pid: int) -> None:
    """Ends the host, process `pid`, by SIGTERM, on which a JVM exits with 143, or else by SIGKILL. Returns when it is
    gone; this process is told by host_watch.py.
    """
    log.error("ending the host (process %d): nothing has started on it, and in async mode it would wait for ever", pid)
    time.sleep(LOG_TIME_S)
    # It may be gone, or another user's.
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + EXIT_TIMEOUT_S
        while os.getppid() == pid and time.monotonic() < deadline:
            time.sleep(0.05)
        if os.getppid() == pid:
            os.kill(pid, signal.SIGKILL)


def _sockets(pid: int) -> Iterator[str]:
    """The inodes of a process's sockets."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            name = str(descriptor.readlink())
            if name.startswith("socket:["):
                yield name[8:-1]


def _tcp_sockets(pid: int) -> Iterator[tuple[str, str]]:
    """State and inode of each TCP socket in a process's network."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                yield fields[3], fields[9]
