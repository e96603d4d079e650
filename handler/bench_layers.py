"""The things that the bench measures, each of them brought up, asked and ended in the same way.

FloorLayer    the engine alone: what all others are compared with
CoreLayer     our core with its formatters, without a host
UrlLayer      a server that runs already
CommandLayer  a server that a command starts, which prints its URL
"""

from __future__ import annotations

import base64
import json
import os
import queue
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Protocol

import msgspec

from ..formatters import Answer, Request
from ..model.errors import StartError
from ..model.options import Settings
from ..model.process_group import APART
from ..model.remote import RemoteEngine
from .bench_cpu import measured
from .bench_load import run_load
from .bench_process import end, tail
from .bench_work import GENERATOR, Figures, Timed, Workload, figures
from .exchange import Exchange
from .service import Service

__all__ = ["CommandLayer", "CoreLayer", "FloorLayer", "Layer", "UrlLayer"]


class Layer(Protocol):
    """Something to measure."""

    name: str

    def start(self) -> None:
        """Brings it up; raises StartError."""
        ...

    def run(self, workload: Workload, prompts: Sequence[str], tokens: int, connections: int) -> Figures:
        """Asks for so many tokens for each prompt, so many requests at once; raises StartError, OSError."""
        ...

    def cpu(self) -> AbstractContextManager[dict[str, float]]:
        """CPU seconds that its processes use meanwhile, by what they are; nothing where they are not known."""
        ...

    def stop(self) -> None: ...


class FloorLayer:
    """vLLM's AsyncLLM in a process of its own (model/vllm_floor.py)."""

    name = "engine alone"

    def __init__(self, settings: Settings, log: Path) -> None:
        self._settings = settings
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._results: IO[str]

    def start(self) -> None:
        """Waits until the engine is up."""
        ours, theirs = os.pipe()
        command = [sys.executable, "-m", "lmi.model.vllm_floor", str(theirs)]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs],
                text=True,
                **APART,
            )
        os.close(theirs)
        self._results = os.fdopen(ours)
        self._ask(base64.b64encode(msgspec.msgpack.encode(self._settings)).decode())

    def _ask(self, line: str) -> dict[str, object]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        if not (answer := self._results.readline()):
            raise StartError(f"{self.name} ended with code {process.wait()}: {tail(self._log)}")
        result: dict[str, object] = json.loads(answer)
        return result

    def run(self, workload: Workload, prompts: Sequence[str], tokens: int, connections: int) -> Figures:
        """The same prompts, token by token or whole, with log-probabilities where the workload shows them."""
        job = {
            "prompts": prompts,
            "connections": connections,
            "tokens": tokens,
            "stream": workload.stream,
            "logprobs": workload.logprobs,
            "chat": workload.dialect == "openai",
        }
        with self.cpu() as cpu:
            result = self._ask(json.dumps(job))
        answers = [Timed(0.0, times, tokens) for times in msgspec.convert(result["times"], list[list[float]])]
        seconds = msgspec.convert(result["seconds"], float)
        return figures(self.name, workload, connections, asked=tokens, answers=answers, seconds=seconds, cpu=cpu)

    def cpu(self) -> AbstractContextManager[dict[str, float]]:
        """Of vLLM's front and of its core."""
        return measured([self._process.pid] if self._process else [])

    def stop(self) -> None:
        """Ends the process and its engine."""
        process = self._process
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            end(process)
            self._results.close()


class CoreLayer:
    """Service and Exchange as every host uses them, drained as soon as there is something."""

    name = "core, no host"

    def __init__(self, settings: Settings) -> None:
        self._engine = RemoteEngine(settings)
        self._service = Service(settings, self._engine)

    def start(self) -> None:
        """Starts the engine's process."""
        self._service.start()

    def run(self, workload: Workload, prompts: Sequence[str], tokens: int, connections: int) -> Figures:
        """Keeps so many exchanges open."""
        ended: queue.SimpleQueue[tuple[Timed, Exchange]] = queue.SimpleQueue()

        def begin(prompt: str) -> None:
            timed = Timed(time.perf_counter(), [], tokens)
            opened = self._service.open(Request(json.dumps(workload.body(prompt, tokens)).encode()), follow(timed))
            if isinstance(opened, Answer):
                raise StartError(f"the bench's request was refused: {opened.failure}")

        def follow(timed: Timed) -> _Follower:
            return _Follower(timed, ended)

        waiting = iter(prompts)
        answers: list[Timed] = []
        with self.cpu() as cpu:
            start = time.perf_counter()
            for prompt in islice(waiting, connections):
                begin(prompt)
            while len(answers) < len(prompts):
                timed, exchange = ended.get()
                if exchange.failure is not None:
                    raise exchange.failure
                answers.append(timed)
                if (following := next(waiting, None)) is not None:
                    begin(following)
            seconds = time.perf_counter() - start
        return figures(self.name, workload, connections, asked=tokens, answers=answers, seconds=seconds, cpu=cpu)

    def cpu(self) -> AbstractContextManager[dict[str, float]]:
        """Of this process, in which the core runs, and of the engine's."""
        engine = self._engine.process_id
        return measured([engine] if engine else [], [os.getpid()])

    def stop(self) -> None:
        """Ends the engine's process."""
        self._service.close()


class _Follower:
    """Takes an exchange's records as they come, on the engine's thread."""

    def __init__(self, timed: Timed, ended: queue.SimpleQueue[tuple[Timed, Exchange]]) -> None:
        self._timed = timed
        self._ended = ended

    def __call__(self, exchange: Exchange) -> None:
        now = time.perf_counter()
        finished = exchange.finished
        while exchange.records:
            exchange.records.popleft()
            self._timed.records.append(now)
        if finished:
            self._ended.put((self._timed, exchange))


class UrlLayer:
    """Whatever answers at a URL; what its processes cost is not known. `model` is for servers that must be told."""

    def __init__(self, name: str, url: str, headers: dict[str, str] | None = None, model: str | None = None) -> None:
        self.name = name
        self.url = url
        self._headers = headers or {}
        self._model = model

    @property
    def process_id(self) -> int | None:
        """Not known."""
        return None

    def start(self) -> None:
        """It runs already."""

    def run(self, workload: Workload, prompts: Sequence[str], tokens: int, connections: int) -> Figures:
        """Posts the workload's bodies over so many connections."""
        named = {"model": self._model} if self._model and workload.dialect == "openai" else {}
        bodies = [workload.body(prompt, tokens) | named for prompt in prompts]
        with self.cpu() as cpu:
            load = run_load(self.url, bodies, connections, self._headers)
        cpu[GENERATOR] = load.cpu
        refused = next((answer for answer in load.answers if answer.status != 200), None)
        if refused is not None:
            raise StartError(f"{self.name} answered {refused.status}: {refused.body()[:300].decode(errors='replace')}")
        answers = [
            Timed(answer.sent, answer.times(workload.mark), workload.tokens(answer.body(), tokens))
            for answer in load.answers
        ]
        return figures(self.name, workload, connections, asked=tokens, answers=answers, seconds=load.seconds, cpu=cpu)

    def cpu(self) -> AbstractContextManager[dict[str, float]]:
        """Nothing."""
        return measured()

    def stop(self) -> None:
        """It is not ours to end."""


class CommandLayer(UrlLayer):
    """A server that a command starts: it prints a line with its http:// URL once it serves."""

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
                self._command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, **APART
            )
        while not (found := re.search(r"http://\S+", self._log.read_text(errors="replace"))):
            if self._process.poll() is not None:
                code = self._process.returncode
                raise StartError(f"{self.name}: the command ended with code {code}: {tail(self._log)}")
            time.sleep(0.02)
        self.url = found[0].rstrip("/") + "/invocations"
        self._await_health(found[0])

    def _await_health(self, url: str) -> None:
        import urllib.request

        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with suppress(OSError), urllib.request.urlopen(f"{url.rstrip('/')}/ping", timeout=5) as answer:
                if answer.status == 200:
                    return
            time.sleep(0.02)
        raise StartError(f"{self.name}: {url}/ping is not healthy")

    def cpu(self) -> AbstractContextManager[dict[str, float]]:
        """Of the command's process and all that it started."""
        return measured([self._process.pid] if self._process else [])

    def stop(self) -> None:
        """Ends the command."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.terminate()
            end(self._process)
