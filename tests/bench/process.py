"""The processes that the bench starts, each in a session of its own: their end, and what they have logged."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

__all__ = ["end", "tail"]


def end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Waits for the end of a session's process, which has been asked for; kills what is still there then."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(30)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tail(log: Path) -> str:
    """The end of a log, where the reason stands."""
    return log.read_text(errors="replace")[-300:]
