"""Killing what serves, for the tests of engine and worker death: what runs where, requests in flight, what they got."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil

from ...demo.model import question
from ..hosts.host import Client, Host, Streamed, begun, engine_process

ENDLESS = question("endless").prompt
ASKED = question("plain")

SLOW_PREFILL = {"option.max_num_batched_tokens": "16", "option.max_rolling_batch_size": "8"}
"""A prompt of 1,900 tokens takes 120 steps and more."""

WORKER_APART = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
"""The model in a process beside vLLM's core, with which it speaks through shared memory, as with tensor parallelism on
GPUs: what vLLM's CPU build makes of its own defaults."""


def engine_core(host: Host) -> psutil.Process:
    """vLLM's core: a child of the engine's process."""
    (core,) = [child for child in engine_process(host).children() if not tracker(child)]
    return core


def tracker(process: psutil.Process) -> bool:
    """Whether it is one of Python's, which looks after shared memory."""
    return "resource_tracker" in " ".join(process.cmdline())


def family(process: psutil.Process) -> list[psutil.Process]:
    """A process and all that come of it."""
    return [process, *process.children(recursive=True)]


def alive(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended; one whose parent has not looked after it yet has."""
    return [process for process in processes if lives(process)]


def lives(process: psutil.Process) -> bool:
    """Whether a process has not ended."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def shared_memory(processes: Sequence[psutil.Process]) -> set[Path]:
    """The files of shared memory that processes have mapped; but not those that have no name any more."""
    mapped: set[str] = set()
    for process in processes:
        maps = Path(f"/proc/{process.pid}/maps").read_text(errors="replace")
        mapped |= set(re.findall(r"(/dev/shm/\S+)$", maps, re.MULTILINE))
    return {Path(name) for name in mapped}


def left_in(folder: Path) -> list[str]:
    """What lies in a folder for temporary files, but for Java's own files and what torch keeps for the next start."""
    kept = ("djl_sock", "hsperf", "torchinductor")
    return [entry.name for entry in folder.iterdir() if not entry.name.startswith(kept)]


@dataclass
class Answer:
    """What a request got, and when by time.monotonic()."""

    status: int
    text: str
    ended: float

    @property
    def error(self) -> str:
        """The message of the error that it ended with; empty where it ended well."""
        lines = [line for line in self.text.splitlines() if line]
        if self.status != 200:
            return str(json.loads(self.text)["error"])
        return str(json.loads(lines[-1]).get("error", "")) if lines else ""


@dataclass
class Flight:
    """Requests in flight."""

    streams: list[Streamed] = field(default_factory=list[Streamed])
    tasks: list[asyncio.Task[Answer]] = field(default_factory=list[asyncio.Task[Answer]])

    def stream(self, http: Client, prompt: str, tokens: int) -> Streamed:
        """One more, streamed."""
        streamed = Streamed()
        body = {"inputs": prompt, "parameters": {"max_new_tokens": tokens}, "stream": True}

        async def run() -> Answer:
            await http.stream(body, streamed)
            return Answer(streamed.status, "\n".join(streamed.lines), time.monotonic())

        self.streams.append(streamed)
        self.tasks.append(asyncio.create_task(run()))
        return streamed

    def whole(self, http: Client, prompt: str, tokens: int) -> None:
        """One more, whole."""

        async def run() -> Answer:
            answer = await http.post({"inputs": prompt, "parameters": {"max_new_tokens": tokens}})
            return Answer(answer.status_code, answer.text, time.monotonic())

        self.tasks.append(asyncio.create_task(run()))


async def in_flight(http: Client, moment: str) -> Flight:
    """Requests up to a moment: none ("idle"), before any token of most of them ("prefill"), or "stream"."""
    flight = Flight()
    if moment == "idle":
        return flight
    running = flight.stream(http, ENDLESS, 1900)
    await begun([running])
    if moment == "prefill":
        # Each with a beginning of its own: no prefix of it is in the cache.
        late = [flight.stream(http, f"{uuid4()} " + "Count up. " * 300, 20) for _ in range(5)]
        flight.whole(http, f"{uuid4()} " + "Count up. " * 300, 20)
        # Each token of the first is a step in which the others' prompts advance by a few tokens.
        await begun([running], len(running.lines) + 25)
        assert not any(streamed.lines for streamed in late)
        return flight
    more = [flight.stream(http, ENDLESS, 1900) for _ in range(3)]
    flight.whole(http, ENDLESS, 1900)
    await begun(more)
    return flight


async def ping(host: Host) -> int:
    """The status of the host's own health check."""
    async with httpx.AsyncClient(verify=False) as http:
        return (await http.get(f"{host.url}/ping")).status_code


async def ask(http: Client) -> httpx.Response:
    """The question whose answer is known."""
    return await http.post({"inputs": ASKED.prompt, "parameters": {"max_new_tokens": 200}})


def well(response: httpx.Response) -> bool:
    """Whether it is the known answer."""
    return response.status_code == 200 and response.json() == {"generated_text": ASKED.answer}


async def served(http: Client) -> bool:
    """Whether it is answered well now, a moment later."""
    await asyncio.sleep(0.2)
    return well(await ask(http))


def note(**what: Any) -> None:
    """Writes a line for the record, where LMI_KILL_REPORT names a file."""
    if file := os.environ.get("LMI_KILL_REPORT"):
        with Path(file).open("a") as out:
            out.write(json.dumps(what) + "\n")


def end(process: psutil.Process, how: signal.Signals) -> float:
    """Sends a signal; the time."""
    process.send_signal(how)
    return time.monotonic()
