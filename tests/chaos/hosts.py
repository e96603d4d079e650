"""A host whose processes can be looked into and killed: a probe in the worker, and a handle that fails when told to."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from ..bench.cpu import memory
from ..kit.djl.hosting import DjlHost, HostError
from ..kit.djl.lockout import locked_out
from ..kit.hosts.host import WITHOUT_JAVA, Host, engine_process, model_directory, start
from . import probe
from .storm import Fault

__all__ = ["Victim"]

MODEL_PY = """\
import os
import signal
from pathlib import Path

import chaos_probe
from lmi.handler import handle as lmi_handle

chaos_probe.start()
FAIL, DIE = Path("fail"), Path("die")


def handle(inputs):
    output = lmi_handle(inputs)
    if DIE.exists():
        DIE.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if FAIL.exists():
        FAIL.unlink()
        raise RuntimeError("the user's own handle fails once")
    return output
"""
"""A user's handle around ours. Java's answer to what it raises is a reset of the rolling batch."""

SERVER_MODEL_PY = "import chaos_probe\n\nchaos_probe.start()\n"

PATIENT = {"retry_threshold": "100"}
"""Otherwise the host is given up after a first failure."""


class Victim:
    """A running host, what it consists of, and what can be done to it."""

    def __init__(self, kind: str, demo: Path, folder: Path, properties: Mapping[str, str] | None = None) -> None:
        self.kind, self.djl = kind, (djl := kind not in WITHOUT_JAVA)
        own = {"option.entryPoint": "model.py"} if djl else {}
        self.directory = model_directory(demo, folder / "model", {**own, **(properties or {})})
        (self.directory / "model.py").write_text(MODEL_PY if djl else SERVER_MODEL_PY)
        shutil.copy(Path(probe.__file__), self.directory / "chaos_probe.py")
        self.host: Host = start(kind, self.directory, folder / "log", PATIENT if djl else None)

    @property
    def port(self) -> int:
        """Where it serves."""
        return int(self.host.url.rpartition(":")[2])

    def processes(self) -> dict[str, psutil.Process]:
        """Those of ours, by what they are; without those that are down now."""
        found: dict[str, psutil.Process] = {}
        with suppress(psutil.Error, HostError, ValueError):
            found["worker"] = psutil.Process(self.host.worker_pid)
            found["engine"] = engine_process(self.host)
        if isinstance(self.host, DjlHost):
            found["java"] = psutil.Process(self.host.pid)
        return found

    def memory(self) -> dict[str, int]:
        """Bytes of memory of each process's own."""
        sizes: dict[str, int] = {}
        for role, process in self.processes().items():
            with suppress(OSError):
                _, sizes[role] = memory(process.pid)
        return sizes

    def alive(self) -> dict[str, int]:
        """What is alive in the worker and the engine: requests, tasks, threads, descriptors."""
        found = dict(probe.ask(self.host.worker_pid))
        engine = engine_process(self.host)
        found["engine's threads"], found["engine's descriptors"] = engine.num_threads(), engine.num_fds()
        return found

    async def settled(self, wanted: Callable[[dict[str, int]], bool], seconds: float = 60.0) -> dict[str, int]:
        """What is alive once `wanted` holds of it, or after so long."""
        deadline = time.monotonic() + seconds
        while True:
            found = await asyncio.to_thread(self.alive)
            if wanted(found) or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.5)

    def faults(self) -> list[Fault]:
        """One of each sort that this kind of host knows, in the first half of the time."""
        found = [Fault("the engine is killed", 0.1, self._kill_engine)]
        if self.kind == "rolling":
            found.append(Fault("the rolling batch is reset", 0.25, self._told("fail")))
            found.append(Fault("the worker is killed within a call", 0.35, self._told("die")))
        if self.kind == "async":
            found.append(Fault("the worker is killed", 0.3, self._kill_worker, locks=self._locked_out))
        if not self.djl:
            found.append(Fault("the engine is killed again", 0.3, self._kill_engine))
        return found

    async def _kill_engine(self) -> None:
        engine_process(self.host).kill()

    async def _kill_worker(self) -> None:
        psutil.Process(self.host.worker_pid).kill()

    async def _locked_out(self) -> bool:
        assert isinstance(self.host, DjlHost)
        try:
            return locked_out(await asyncio.to_thread(self.host.thread_dump))
        except HostError as error:
            # Then nothing is excused.
            print(error, file=sys.stderr)
            return False

    def _told(self, name: str) -> Callable[[], Awaitable[None]]:
        """Tells the user's handle; returns once it has heard."""

        async def strike() -> None:
            file = self.directory / name
            file.touch()
            deadline = time.monotonic() + 60
            while file.exists():
                assert time.monotonic() < deadline, f"the handle was not called to {name}"
                await asyncio.sleep(0.01)

        return strike

    def stop(self) -> None:
        self.host.stop()
