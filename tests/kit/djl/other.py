"""Another front end in the place of the test host: DJL Serving itself, where somebody has built it.

LMI_DJL_HOST names a command. It is called with a port, a model directory and the worker's interpreter, serves the
directory's model on that port of the loopback interface, inference and management API both, and ends on SIGTERM. Every
test of a host can be run on it.
"""

from __future__ import annotations

import os
import shlex
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import httpx
import psutil

from .hosting import DjlHost, HostError

COMMAND: Final = shlex.split(os.environ.get("LMI_DJL_HOST", ""))


class OtherHost(DjlHost):
    """What COMMAND starts, with the interface of the test host."""

    def _command(
        self, model_dir: Path, python: Path, environment: Mapping[str, str], properties: Mapping[str, str]
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self._file = model_dir / "serving.properties"
        self._text = self._file.read_text() if self._file.exists() else ""
        self._file.write_text(_merged(self._text, properties))
        return [*COMMAND, str(self._port), str(model_dir), str(python)], {**os.environ, **environment}

    @property
    def worker_pid(self) -> int:
        """The youngest process of DJL's Python engine."""
        below = psutil.Process(self.pid).children(recursive=True)
        workers = [child for child in below if any("djl_python_engine.py" in word for word in child.cmdline())]
        if not workers:
            raise HostError(f"no Python worker is running\n{self.log_tail()}")
        return int(max(workers, key=psutil.Process.create_time).pid)

    def stop(self) -> None:
        """And serving.properties is as it was."""
        super().stop()
        self._file.write_text(self._text)

    def _wait_until_ready(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise HostError(f"the host did not start: it ended with {self._process.returncode}\n{self.log_tail()}")
            try:
                if httpx.get(f"http://127.0.0.1:{self._port}/ping", timeout=5).status_code == 200:
                    return self._port
            except httpx.TransportError:
                time.sleep(0.1)
        raise HostError(f"the host was not ready after {timeout:.0f} s\n{self.log_tail()}")


def _merged(text: str, properties: Mapping[str, str]) -> str:
    """A serving.properties with `properties` put over what it has."""
    kept = [line for line in text.splitlines() if line.partition("=")[0].strip() not in properties]
    return "".join(f"{line}\n" for line in [*kept, *(f"{key}={value}" for key, value in properties.items())])
