"""Another front end in the place of the test host: DJL Serving itself, where somebody has built it.

LMI_DJL_HOST names a command. It is called with a port, a model directory and the worker's interpreter, serves the
directory's model on that port of the loopback interface, inference and management API both, and ends on SIGTERM. Every
test of a host can be run on it.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from uuid import uuid4

import httpx
import psutil

from lmi.model.process.group import PROCESS_GROUP

from .hosting import MARK, DjlHost, HostError

COMMAND: Final = shlex.split(os.environ.get("LMI_DJL_HOST", ""))


class OtherHost(DjlHost):
    """What COMMAND starts, with the interface of the test host."""

    def __init__(
        self,
        model_dir: Path,
        *,
        python: Path,
        log: Path,
        environment: Mapping[str, str] | None = None,
        properties: Mapping[str, str] | None = None,
        timeout: float = 180.0,
        temporary: Path | None = None,
    ) -> None:
        self.log = log
        self._folder = temporary or Path(tempfile.mkdtemp(prefix="djl-"))
        self._keep = temporary is not None
        self._token = uuid4().hex
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._file = model_dir / "serving.properties"
        self._text = self._file.read_text() if self._file.exists() else ""
        self._file.write_text(_merged(self._text, properties or {}))
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [*COMMAND, str(self.port), str(model_dir), str(python)],
                env={**os.environ, **(environment or {}), MARK: self._token},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                **PROCESS_GROUP,
            )
        try:
            self._wait_until_served(timeout)
        except BaseException:
            self.stop()
            raise

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

    def _wait_until_served(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise HostError(f"the host did not start: it ended with {self._process.returncode}\n{self.log_tail()}")
            try:
                if httpx.get(f"{self.url}/ping", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        raise HostError(f"the host was not ready after {timeout:.0f} s\n{self.log_tail()}")


def _merged(text: str, properties: Mapping[str, str]) -> str:
    """A serving.properties with `properties` put over what it has."""
    kept = [line for line in text.splitlines() if line.partition("=")[0].strip() not in properties]
    return "".join(f"{line}\n" for line in [*kept, *(f"{key}={value}" for key, value in properties.items())])
