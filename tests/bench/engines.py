"""The engine alone, and our core without a host: layers of the bench that no socket leads to (bench_layers.Layer)."""

from __future__ import annotations

import base64
import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import IO

import msgspec

from lmi.formatters import Request
from lmi.handler.exchange import Exchange
from lmi.handler.service import Service
from lmi.model.errors import LmiError, StartError
from lmi.model.options import Settings
from lmi.model.process.client import EngineClient
from lmi.model.process.group import PROCESS_GROUP

from .cpu import measured
from .process import end, tail
from .work import Measured, Timed, Workload

__all__ = ["CoreLayer", "FloorLayer"]


class FloorLayer:
    """vLLM's AsyncLLM in a process of its own (tests/bench/vllm_floor.py)."""

    name = "engine alone"

    def __init__(self, settings: Settings, log: Path) -> None:
        self._settings = settings
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._results: IO[str]

    def start(self) -> None:
        """Waits until the engine is up."""
        ours, theirs = os.pipe()
        command = [sys.executable, "-m", "tests.bench.vllm_floor", str(theirs)]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs],
                text=True,
                **PROCESS_GROUP,
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

    def run(self, workload: Workload, prompts: Sequence[str], tokens: int, connections: int) -> Measured:
        """The same prompts, token by token or whole, with log-probabilities where the workload shows them."""
        job = {
            "prompts": prompts,
            "connections": connections,
            "tokens": tokens,
            "stream": workload.stream,
            "logprobs": workload.logprobs,
            "chat": workload.dialect == "openai",
            "adapters": workload.adapters,
        }
        with self.cpu() as cpu:
            result = self._ask(json.dumps(job))
        times = msgspec.convert(result["times"], list[list[float]])
        texts = msgspec.convert(result["texts"], list[str])
        # It ends with an error where an answer has another number of tokens.
        answers = [Timed(0.0, came, tokens, text) for came, text in zip(times, texts, strict=True)]
        return Measured(
            layer=self.name,
            workload=workload,
            connections=connections,
            asked=tokens,
            answers=answers,
            seconds=msgspec.convert(result["seconds"], float),
            cpu=cpu,
        )

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
        self._engine = EngineClient(settings)
        self._service = Service(settings, self._engine)

    def start(self) -> None:
        """Starts the engine's process."""
        self._service.start()

    def run(self, workload: Workload, prompts: Sequence[str], tokens: int, connections: int) -> Measured:
        """Keeps so many exchanges open."""
        ended: queue.SimpleQueue[_Follower] = queue.SimpleQueue()

        def begin(number: int, prompt: str) -> None:
            follower = _Follower(number, ended)
            body = workload.request(number, prompt, tokens)
            opened = self._service.open(Request(json.dumps(body).encode()), follower)
            if opened.finished:
                raise StartError(f"the bench's request was refused: {opened.failure}")

        waiting = iter(enumerate(prompts))
        followers: list[_Follower] = []
        with self.cpu() as cpu:
            start = time.perf_counter()
            for number, prompt in islice(waiting, connections):
                begin(number, prompt)
            while len(followers) < len(prompts):
                follower = ended.get()
                if follower.failure is not None:
                    raise follower.failure
                followers.append(follower)
                if (following := next(waiting, None)) is not None:
                    begin(*following)
            seconds = time.perf_counter() - start
        return Measured(
            layer=self.name,
            workload=workload,
            connections=connections,
            asked=tokens,
            answers=[one.timed(workload, tokens) for one in sorted(followers, key=lambda one: one.number)],
            seconds=seconds,
            cpu=cpu,
        )

    def cpu(self) -> AbstractContextManager[dict[str, float]]:
        """Of this process, in which the core runs, and of the engine's."""
        engine = self._engine.process_id
        return measured([engine] if engine else [], [os.getpid()])

    def stop(self) -> None:
        """Ends the engine's process."""
        self._service.close()


class _Follower:
    """Takes an exchange's records as they come, on the engine's thread, and keeps them until the clock has stopped."""

    def __init__(self, number: int, ended: queue.SimpleQueue[_Follower]) -> None:
        self.number = number
        self.failure: LmiError | None = None
        self._ended = ended
        self._sent = time.perf_counter()
        self._times: list[float] = []
        self._records: list[bytes] = []

    def __call__(self, exchange: Exchange) -> None:
        now = time.perf_counter()
        finished = exchange.finished
        while exchange.records:
            self._records.append(exchange.records.popleft())
            self._times.append(now)
        if finished:
            self.failure = exchange.failure
            self._ended.put(self)

    def timed(self, workload: Workload, tokens: int) -> Timed:
        """What came; records that bring no text have no time that counts."""
        body = b"".join(self._records)
        times = [at for at, record in zip(self._times, self._records, strict=True) if workload.mark.search(record)]
        return Timed(self._sent, times, workload.tokens(body, tokens), workload.text(body))
