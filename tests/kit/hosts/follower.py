"""`lmi follow` beside a leader on the same machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from .host import free_port

__all__ = ["LOOPBACK", "Follower", "two_hosts"]

LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"}
"""For torch's connections between both: on a machine of several addresses it would take one that others can reach."""


def two_hosts(**more: str) -> dict[str, str]:
    """The options that leader and follower have in common, on ports of their own."""
    ports = {"option.node_port": str(free_port()), "option.master_port": str(free_port())}
    return {"option.nnodes": "2", "option.master_addr": "127.0.0.1", **ports, **more}


class Follower:
    """One that runs."""

    def __init__(
        self, model_dir: Path, log: Path, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        lmi = str(Path(sys.executable).parent / "lmi")
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [lmi, "follow", str(model_dir), "--set=node_rank=1", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **LOOPBACK, **(environment or {})},
            )

    @property
    def engine(self) -> psutil.Process:
        """The process of its engine's part."""
        (engine,) = psutil.Process(self.process.pid).children()
        return engine

    def log_text(self) -> str:
        """What it has written so far."""
        return self._log.read_text(errors="replace")

    def wait(self, timeout: float = 60.0) -> int:
        """Its exit status."""
        return self.process.wait(timeout)

    def stop(self) -> int:
        """Ends it; its exit status."""
        self.process.terminate()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
