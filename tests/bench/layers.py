"""The things that the bench measures, each of them brought up, asked and ended in the same way.

FloorLayer    the engine alone: what all others are compared with (engines.py)
UrlLayer      a server that runs already
CommandLayer  a server that a command starts, which prints its URL
"""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from http import HTTPStatus
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from lmi.model.errors import StartError
from lmi.model.process.group import PROCESS_GROUP

from .cpu import measured, tree_memory
from .figures import GENERATOR, Measured, Timed
from .load import Answered, run_load
from .process import end, tail
from .workloads import Workload

__all__ = ["CommandLayer", "Layer", "UrlLayer"]


class Layer(Protocol):
    """Something to measure."""

    name: str

    def start(self) -> None:
        """Brings it up; raises StartError."""
        ...

    def run(self, workload: Workload, prompts: Sequence[str], tokens: int, connections: int) -> Measured:
        """Asks for so many tokens for each prompt, so many requests at once; raises StartError, OSError."""
        ...

    def cpu(self) -> AbstractContextManager[dict[str, float]]:
        """CPU seconds that its processes use meanwhile, by what they are; nothing where they are not known."""
        ...

    def memory(self) -> dict[str, int]:
        """Bytes that its processes have of their own, by what they are; nothing where they are not known."""
        ...

    def stop(self) -> None: ...


class UrlLayer:
    """Whatever answers at a URL; what its processes cost is not known."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url

    @property
    def process_id(self) -> int | None:
        """Not known."""
        return None

    def start(self) -> None:
        """It runs already."""

    def run(self, workload: Workload, prompts: Sequence[str], tokens: int, connections: int) -> Measured:
        """Posts the workload's bodies over so many connections."""
        bodies = [workload.request(number, prompt, tokens) for number, prompt in enumerate(prompts)]
        with self.cpu() as cpu:
            load = run_load(self.url + (workload.path if self.url.endswith("/v1") else ""), bodies, connections)
        cpu[GENERATOR] = load.cpu
        refused = next((answer for answer in load.answers if answer.status != 200), None)
        if refused is not None:
            raise StartError(f"{self.name} answered {refused.status}: {_shown(refused)}")
        answers: list[Timed] = []
        for answer in load.answers:
            body, times = answer.body(), answer.times(workload.mark)
            answers.append(Timed(answer.sent, times, workload.tokens(body, tokens), workload.text(body)))
        if not any(answer.records for answer in answers):
            # Nothing could be said of its times, and none of its tokens would count.
            raise StartError(
                f"{self.name}: {workload.name}: none of {len(answers)} answers has what shows its records, "
                f"{workload.mark.pattern.decode()}; the first is {_shown(load.answers[0])}"
            )
        return Measured(
            layer=self.name,
            workload=workload,
            connections=connections,
            asked=tokens,
            answers=answers,
            seconds=load.seconds,
            cpu=cpu,
        )

    def cpu(self) -> AbstractContextManager[dict[str, float]]:
        """Nothing."""
        return measured()

    def memory(self) -> dict[str, int]:
        """Nothing."""
        return {}

    def stop(self) -> None:
        """It is not ours to end."""


def _shown(answer: Answered) -> str:
    return answer.body()[:300].decode(errors="replace")


class CommandLayer(UrlLayer):
    """A server that a command starts: it prints a line with its http:// URL once it serves, with or without a path."""

    def __init__(self, name: str, command: Sequence[str] | str, log: Path) -> None:
        super().__init__(name, "")
        self._command = shlex.split(command) if isinstance(command, str) else list(command)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process_id(self) -> int | None:
        """The command's process."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Waits for the URL."""
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, **PROCESS_GROUP
            )
        while not (found := re.search(r"http://\S+", self._log.read_text(errors="replace"))):
            if self._process.poll() is not None:
                code = self._process.returncode
                raise StartError(f"{self.name}: the command ended with code {code}: {tail(self._log)}")
            time.sleep(0.02)
        where = urlsplit(found[0])
        self.url = where._replace(path=where.path.rstrip("/") or "/invocations").geturl()
        self._await_health(f"{where.scheme}://{where.netloc}/ping")

    def _await_health(self, url: str) -> None:
        import urllib.error
        import urllib.request

        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(url, timeout=5):
                    return
            except urllib.error.HTTPError as error:
                if error.code == HTTPStatus.NOT_FOUND:
                    # It has no such route, as vLLM's in Rust.
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise StartError(f"{self.name}: {url} is not healthy")

    def cpu(self) -> AbstractContextManager[dict[str, float]]:
        """Of the command's process and all that it started."""
        return measured([self._process.pid] if self._process else [])

    def memory(self) -> dict[str, int]:
        """Of the same."""
        return tree_memory(self._process.pid) if self._process else {}

    def stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.terminate()
            end(self._process)
