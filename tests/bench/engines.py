"""The engine alone: the layer of the bench that no socket leads to (layers.Layer)."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

import msgspec

from lmi.model.errors import StartError
from lmi.model.options import Settings
from lmi.model.process.group import PROCESS_GROUP

from .cpu import measured, tree_memory
from .figures import Measured, Timed
from .process import end, tail
from .workloads import Workload

__all__ = ["FloorLayer"]


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

    def memory(self) -> dict[str, int]:
        """Of the same."""
        return tree_memory(self._process.pid) if self._process else {}

    def stop(self) -> None:
        """Ends the process and its engine."""
        process = self._process
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            end(process)
            self._results.close()
