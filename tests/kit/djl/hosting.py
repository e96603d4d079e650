"""The real DJL Python engine as a process of a test.

    test -> DjlHost -> java (host/, compiled once) -> DJL's Python engine -> worker process: djl_python, handler

The Java part loads one model directory, with minWorkers workers, and answers HTTP as DJL Serving does. It is compiled
into `.cache/djl-host/` under the repository root, in a folder named after the hash of its sources. Building needs a JDK
(17 or newer) and Maven on PATH, and fetches DJL's artifacts when Maven's own cache lacks them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Final
from uuid import uuid4

from lmi.model.process.group import PROCESS_GROUP

from ..packages import locked
from ..paths import CACHE as PROJECT_CACHE
from ..paths import REQUIRED

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11

SOURCES: Final = Path(__file__).resolve().parent / "host"
CACHE: Final = PROJECT_CACHE / "djl-host"

# Variables that would configure DJL behind a test's back.
_FOREIGN: Final = ("OPTION_", "ARGS_", "DJL_", "SERVING_", "SAGEMAKER_", "PYTHON")
MARK: Final = "LMI_TEST_HOST"
"""In the environment of all that a host starts."""
_JAVA_FLAGS: Final = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
    "-Dai.djl.offline=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


class HostError(RuntimeError):
    """The host did not build, did not load the model, or has ended. The text ends with the tail of its log."""


@dataclass(frozen=True)
class Build:
    """A compiled host: a folder of classes and one of jars."""

    folder: Path

    @property
    def classpath(self) -> str:
        return f"{self.folder / 'classes'}{os.pathsep}{self.folder / 'lib' / '*'}"

    @property
    def engine_jar(self) -> Path:
        """DJL's Python engine: a zip that holds `djl_python` at its top level."""
        return next((self.folder / "lib").glob("python-*.jar"))


def available() -> str | None:
    """Why the host cannot run here, or None; raises HostError where LMI_REQUIRE says that it must."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing and "java" in REQUIRED:
        raise HostError(f"{' and '.join(missing)} not on PATH, which LMI_REQUIRE asks for")
    return f"{' and '.join(missing)} not on PATH" if missing else None


def djl_python_path() -> Path:
    """The jar to put on `sys.path` (or PYTHONPATH) for `import djl_python`; Python imports from it as from a zip."""
    return built().engine_jar


@contextmanager
def djl_python() -> Iterator[None]:
    """djl_python can be imported, and is forgotten afterwards: other tests are about its absence."""
    path = str(djl_python_path())
    sys.path.append(path)
    try:
        yield
    finally:
        sys.path.remove(path)
        for name in [name for name in sys.modules.copy() if name.partition(".")[0] == "djl_python"]:
            del sys.modules[name]


@functools.cache
def built() -> Build:
    """The compiled host, built at the first call that finds it missing. Safe in parallel test processes."""
    build = Build(CACHE / _fingerprint())
    if build.folder.is_dir():
        return build
    with locked(CACHE / "lock"):
        if not build.folder.is_dir():
            _compile(build.folder)
    return build


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for path in [SOURCES / "pom.xml", *sorted((SOURCES / "src").rglob("*.java"))]:
        digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _compile(folder: Path) -> None:
    """Compile into a folder beside and rename it, so that a folder of that name is always a whole build."""
    unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix="unfinished-"))
    command = [
        *("mvn", "--batch-mode", "--quiet", "--file", str(SOURCES / "pom.xml"), f"-Dhost.build={unfinished}"),
        *("compiler:compile", "dependency:copy-dependencies", "-DincludeScope=runtime"),
        f"-DoutputDirectory={unfinished}/lib",
    ]
    try:
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
        )
        if done.returncode:
            raise HostError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


class DjlHost:
    """A running host of one model directory; a context manager.

    `python` is the interpreter of the worker (it needs numpy). `environment` is put over a copy of ours that is cleared
    of what configures DJL or Python; its PYTHONPATH reaches the worker. `properties` are put over those of the model
    directory's serving.properties, with the same keys (`option.rolling_batch`, `batch_size`). `log` receives all that
    Java and the worker write. `timeout` is in seconds, for the start. `temporary` is Java's folder for temporary files,
    which stays; without it the host has one of its own, which goes with it.

    The constructor returns when the model is loaded, and raises HostError if it does not load.
    """

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
        # The worker's socket is <java.io.tmpdir>/djl_sock.19000: a folder for each host, and a short path (107 bytes).
        self._folder = temporary or Path(tempfile.mkdtemp(prefix="djl-"))
        self._keep = temporary is not None
        self._token = uuid4().hex
        command, variables = self._command(model_dir, python, environment or {}, properties or {})
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                env={**variables, MARK: self._token},
                stdin=subprocess.PIPE,  # never written: the host ends with us, whatever happens to us
                stdout=out,
                stderr=subprocess.STDOUT,
                **PROCESS_GROUP,
            )
        try:
            self.port = self._wait_until_ready(timeout)
        except BaseException:
            self.stop()
            raise

    def _command(
        self, model_dir: Path, python: Path, environment: Mapping[str, str], properties: Mapping[str, str]
    ) -> tuple[Sequence[str], Mapping[str, str]]:
        """What is started, and its environment."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        variables = {
            **inherited,
            "PYTHON_EXECUTABLE": str(python),
            "PYTHONUNBUFFERED": "1",
            "OPT_OUT_TRACKING": "true",
            "SERVING_FEATURES": "vllm",  # as in the LMI container: what option.rolling_batch=auto becomes
            "DJL_CACHE_DIR": str(CACHE / "djl"),
            "ENGINE_CACHE_DIR": str(CACHE / "djl"),
            **environment,
        }
        command = ["java", *_JAVA_FLAGS, f"-Djava.io.tmpdir={self._folder}", "-cp", built().classpath]
        command += ["lmi.testhost.Host", str(model_dir.resolve())]
        return [*command, *(f"{key}={value}" for key, value in properties.items())], variables

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The Java process."""
        return self._process.pid

    @property
    def worker_pid(self) -> int:
        """The Python worker that serves now; another one after a restart.

        That is the one on the latest port: Java sometimes starts an earlier one again that nobody uses any more
        (docs/robustness.md, The worker).
        """
        for path in sorted(
            self._folder.glob("djl_sock.*.pid"), key=lambda path: int(path.name.split(".")[1]), reverse=True
        ):
            with suppress(OSError, ValueError):
                pid = int(path.read_text())
                os.kill(pid, 0)
                return pid
        raise HostError(f"no Python worker is running\n{self.log_tail()}")

    def log_text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def log_tail(self, lines: int = 60) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def thread_dump(self, timeout: float = 10.0) -> str:
        """What each of Java's threads does now, as the JVM tells it on SIGQUIT; raises HostError if it does not."""
        with self.log.open(encoding="utf-8", errors="replace") as log:
            log.seek(0, os.SEEK_END)
            self._process.send_signal(signal.SIGQUIT)
            dump, deadline = "", time.monotonic() + timeout
            while "JNI global refs" not in dump:
                if time.monotonic() > deadline:
                    raise HostError(f"no dump of Java's threads within {timeout} s")
                time.sleep(0.05)
                dump += log.read()
        return dump

    def stop(self) -> None:
        """End Java, the worker and all that they started; may be called twice."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in _marked(self._token):  # those that left the group, such as a child that made a session of its own
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        stdin: IO[bytes] | None = self._process.stdin
        if stdin is not None:
            stdin.close()
        if not self._keep:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_until_ready(self, timeout: float) -> int:
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            ended = self._process.poll()
            text = self.log_text()
            if ready := re.search(r"^HOST READY port=(\d+)\n", text, re.MULTILINE):
                return int(ready[1])
            if ended is not None:
                failed = re.search(r"^HOST FAILED (.*)", text, re.MULTILINE)
                reason = failed[1] if failed else f"java ended with {ended}"
                raise HostError(f"the host did not start: {reason}\n{self.log_tail()}")
            time.sleep(0.02)
        raise HostError(f"the host was not ready after {timeout:.0f} s\n{self.log_tail()}")


def _marked(token: str) -> Iterator[int]:
    """The processes that inherited the host's mark in their environment, where /proc shows it."""
    mark = f"{MARK}={token}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)
