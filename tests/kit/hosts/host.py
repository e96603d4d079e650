"""A demo model behind each host, with one interface: tests that say nothing of hosts run on all of them.

Server      `lmi serve` as a process
Djl         the real DJL engine, in rolling-batch or in async mode
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx
import psutil
import pytest

from ..djl import hosting, other
from ..djl.hosting import DjlHost
from ..paths import ACTED, PARROT, PLAYED

FAST = {
    "option.enforce_eager": "true",
    "option.max_num_batched_tokens": "2048",
    "option.kv_cache_memory_bytes": str(64 << 20),
}
"""What makes an engine start in seconds (the rest is in the Makefile's environment)."""

FAST_OPTIONS = {name.removeprefix("option."): value for name, value in FAST.items()}
"""The same, as Settings are made of them."""

OPTIONS = "LMI_HOST_OPTIONS"
"""An environment variable: NAME=VALUE, with blanks between, over FAST in every model directory that tests make; a
test's own properties go before them. `make gpu-check` has its tests on CUDA graphs and half precision by it."""

START_TIMEOUT = 240.0


def model_directory(demo: Path, target: Path, properties: Mapping[str, str]) -> Path:
    """A model directory with the demo model's files and a serving.properties of its own."""
    target.mkdir(parents=True)
    for file in demo.iterdir():
        if file.name != "serving.properties":
            (target / file.name).symlink_to(file)
    lines = {
        "engine": "Python",
        "option.entryPoint": "lmi.handler",
        "option.dtype": "fp32",
        "option.max_model_len": "2048",
        "minWorkers": "1",
        "maxWorkers": "1",
        **FAST,
        **dict(option.split("=", 1) for option in os.environ.get(OPTIONS, "").split()),
        **properties,
    }
    (target / "serving.properties").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return target


def directory_without_model(target: Path) -> Path:
    """A model directory for an engine that reads nothing of it (tests/kit/faults/engine), made where there is none."""
    target.mkdir(exist_ok=True)
    (target / "serving.properties").write_text(
        "engine=Python\noption.entryPoint=lmi.handler\noption.load_format=dummy\nminWorkers=1\nmaxWorkers=1\n"
    )
    for file in ("config.json", "tokenizer.json"):
        (target / file).write_text("{}")
    return target


class Host(Protocol):
    """A running host."""

    @property
    def url(self) -> str: ...

    @property
    def worker_pid(self) -> int:
        """The process that the engine's process is a child of."""
        ...

    def log_text(self) -> str: ...

    def stop(self) -> None: ...


def free_port() -> int:
    """A port of the loopback interface that nobody listens on, for who must know it beforehand.

    For a minute the kernel gives it to nobody who asks for any port, as its last connection is in TIME_WAIT (tcp(7));
    who asks for this one gets it, with SO_REUSEADDR as servers set it.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        # The first to close is the one that waits.
        accepted.close()
        return int(listener.getsockname()[1])


SERVING = re.compile(r"^lmi: serving on (http\S+)$", re.MULTILINE)
"""What `lmi serve` says once it listens."""


class Server:
    """`lmi serve`."""

    def __init__(
        self,
        model_dir: Path,
        log: Path,
        arguments: Sequence[str] = (),
        within: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        python: Path = Path(sys.executable),
        timeout: float = START_TIMEOUT,
        *,
        container: bool = False,
    ) -> None:
        """`within` is a command that runs the server's, as its only child; `environment` is put over ours; `python` has
        the `lmi` beside it that is run; `timeout` is in seconds, for the start.

        `container`: it is told of everything by variables, as SageMaker tells a container: nothing but the model is
        left in the directory. Only its address is loopback's.
        """
        self._within = bool(within)
        self._log = log
        given = [str(model_dir), "--port", "0"]
        if container:
            given = ["--host", "127.0.0.1"]
            environment = {**_variables_of(model_dir), **(environment or {})}
        command = [*within, str(python.parent / "lmi"), "serve", *given, *arguments]
        with log.open("w") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
            )
        deadline = time.monotonic() + timeout
        while (found := SERVING.search(self.log_text())) is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"lmi serve did not start:\n{self.log_text()[-4000:]}")
            time.sleep(0.1)
        self.url = found[1]

    @property
    def worker_pid(self) -> int:
        """The server itself."""
        return psutil.Process(self.process.pid).children()[0].pid if self._within else self.process.pid

    def log_text(self) -> str:
        """What the server has written so far."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Ends the server; what has not ended after 20 seconds is killed."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _variables_of(model_dir: Path) -> dict[str, str]:
    """What serving.properties says, which is no longer there then: vLLM's own arguments as AWS's image takes them."""
    file = model_dir / "serving.properties"
    found = {"SAGEMAKER_MODEL_PATH": str(model_dir), "SAGEMAKER_BIND_TO_PORT": str(free_port())}
    for line in file.read_text("utf-8").splitlines():
        name, _, value = line.partition("=")
        if name.startswith("option.") and name != "option.entryPoint":
            option = name.removeprefix("option.").upper()
            found[("SM_VLLM_" if option in OF_VLLM else "OPTION_") + option] = value
    file.unlink()
    return found


OF_VLLM = {"MAX_MODEL_LEN", "ENFORCE_EAGER", "SERVED_MODEL_NAME", "TOOL_CALL_PARSER"}


def worker_environment() -> dict[str, str]:
    """What a worker behind DJL needs of the test's environment: caches, and how vLLM is to start."""
    kept = ("VLLM_", "TORCH", "OMP_", "HF_", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "DO_NOT_TRACK", "LMI_TEST_")
    return {name: value for name, value in os.environ.items() if name.startswith(kept)}


def djl_host(
    model_dir: Path,
    log: Path,
    *,
    mode: str,
    properties: Mapping[str, str] | None = None,
    python: Path = Path(sys.executable),
    timeout: float = START_TIMEOUT,
    temporary: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> DjlHost:
    """The real DJL engine in mode "rolling", "async" or "dynamic" (batches of up to 8); or what LMI_DJL_HOST starts."""
    modes = {
        "rolling": {"option.rolling_batch": "vllm"},
        "async": {"option.rolling_batch": "disable", "option.async_mode": "true"},
        "dynamic": {"option.rolling_batch": "disable", "batch_size": "8", "max_batch_delay": "50"},
    }
    # Where nobody says how many, DJL Serving says 32 in async mode; many tests have more at once.
    size = {"OPTION_MAX_ROLLING_BATCH_SIZE": "256"} if mode == "async" else {}
    return (other.OtherHost if other.COMMAND else DjlHost)(
        model_dir,
        python=python,
        log=log,
        environment={**worker_environment(), **size, **(environment or {})},
        properties={**modes[mode], **(properties or {})},
        timeout=timeout,
        temporary=temporary,
    )


def start(
    kind: str,
    model_dir: Path,
    log: Path,
    properties: Mapping[str, str] | None = None,
    *,
    parrot: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Host:
    """A host of a kind: "server", "container" (the same as SageMaker runs it), "rolling", "async" or "dynamic".

    `parrot`: with tests/kit/parrot's engine instead of vLLM, for what a host does whatever engine it has.
    `environment` is put over ours.
    """
    environment = {**(with_parrot() if parrot else {}), **(environment or {})}
    if kind == "server":
        options = [f"--set={name.removeprefix('option.')}={value}" for name, value in (properties or {}).items()]
        return Server(model_dir, log, options, environment=environment)
    if kind == "container":
        return Server(model_dir, log, environment=environment, container=True)
    return djl_host(model_dir, log, mode=kind, properties=properties, environment=environment)


WITHOUT_JAVA = ("server", "container")


@contextmanager
def running(
    kind: str,
    model_dir: Path,
    log: Path,
    properties: Mapping[str, str] | None = None,
    *,
    parrot: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Host]:
    """What `start` starts, until the end of the block. Skips the test where Java is missing."""
    if kind not in WITHOUT_JAVA and (missing := hosting.available()):
        pytest.skip(missing)
    host = start(kind, model_dir, log, properties, parrot=parrot, environment=environment)
    try:
        yield host
    finally:
        host.stop()


def with_parrot() -> dict[str, str]:
    """The environment in which a host's engine is the parrot."""
    return _importing(PARROT)


def with_acted(sequences: int, step: float) -> dict[str, str]:
    """The environment in which a host has vLLM on an acted core (tests/kit/acted/acted_engine.py).

    A step serves so many sequences at most, and takes `step` seconds.
    """
    return {**_importing(ACTED), "LMI_TEST_SEQUENCES": str(sequences), "LMI_TEST_STEP_S": str(step)}


def with_played(stage: Path) -> dict[str, str]:
    """The environment in which a host's model says what the scripts in the folder `stage` say (tests/kit/played)."""
    return {**_importing(PLAYED), "LMI_TEST_STAGE": str(stage), "LMI_TEST_STEP_S": "0.002"}


def _importing(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))}


def engine_process(host: Host) -> psutil.Process:
    """The engine's process of a host."""
    children = psutil.Process(host.worker_pid).children()
    (engine,) = [child for child in children if "lmi.model.process.engine_main" in " ".join(child.cmdline())]
    return engine


@dataclass
class Streamed:
    """A streamed answer: its records and when each came, by a counter that all requests of a test share."""

    status: int = 0
    content_type: str = ""
    lines: list[str] = field(default_factory=list[str])
    ticks: list[int] = field(default_factory=list[int])

    @property
    def documents(self) -> list[dict[str, Any]]:
        """The JSON of each line or event."""
        return [json.loads(line.removeprefix("data: ")) for line in self.lines if line]


class Client:
    """Requests to a host, many at once."""

    def __init__(self, host: Host, http: httpx.AsyncClient) -> None:
        self._url = f"{host.url}/invocations"
        self._http = http
        self._tick = 0

    async def post(self, body: object) -> httpx.Response:
        """A whole answer; `body` is sent as JSON, or as it is if bytes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self._http.post(self._url, content=content, headers={"content-type": "application/json"})

    async def stream(self, body: object, streamed: Streamed | None = None) -> Streamed:
        """A streamed answer, line by line, into `streamed` as it comes."""
        answer = streamed if streamed is not None else Streamed()
        content = json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        async with self._http.stream("POST", self._url, content=content, headers=headers) as response:
            answer.status = response.status_code
            answer.content_type = response.headers.get("content-type", "")
            async for line in response.aiter_lines():
                self._tick += 1
                answer.lines.append(line)
                answer.ticks.append(self._tick)
        return answer


@asynccontextmanager
async def client(host: Host, connections: int = 100, timeout: float = 120.0) -> AsyncIterator[Client]:
    """A client of a host."""
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    async with httpx.AsyncClient(verify=False, timeout=timeout, limits=limits) as http:
        yield Client(host, http)


async def eventually(condition: Any, timeout: float = 60.0) -> None:
    """Waits until the coroutine function `condition` gives a true value."""
    deadline = time.monotonic() + timeout
    while not await condition():
        assert time.monotonic() < deadline, "the condition did not come about in time"
        await asyncio.sleep(0.01)


async def begun(streams: Sequence[Streamed], lines: int = 5) -> None:
    """Waits until each stream has brought so many lines."""

    async def all_begun() -> bool:
        return all(len(streamed.lines) >= lines for streamed in streams)

    await eventually(all_begun)


def without_lmi(target: Path) -> Path:
    """An interpreter with everything that this one has installed but lmi: for packages that bring it themselves."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(target)], check=True)
    (theirs,) = target.glob("lib/python*/site-packages")
    ours = Path(next(path for path in sys.path if path.endswith("site-packages")))
    for entry in ours.iterdir():
        if not entry.name.startswith(("__editable__", "lmi", "_lmi")):
            (theirs / entry.name).symlink_to(entry)
    shutil.rmtree(theirs / "__pycache__", ignore_errors=True)
    return target / "bin" / "python"
