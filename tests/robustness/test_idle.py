"""A worker of whom nothing is asked costs next to nothing, on every host."""

from __future__ import annotations

import asyncio
import time

import psutil
import pytest

from ..bench.cpu import OTHERS, measured
from ..demo.model import question
from ..kit.hosts.host import Host, Streamed, begun, client, engine_process

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.timing]

WINDOW = 4.0
"""Seconds: a hundredth of it is four times what the system counts CPU time in."""


def spent(process: psutil.Process) -> float:
    """CPU seconds of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def spent_stepping(engine: psutil.Process) -> float:
    """Those of the engine's main thread, which drives it."""
    (main,) = [thread for thread in engine.threads() if thread.id == engine.pid]
    return float(main.user_time + main.system_time)


async def test_an_idle_worker(host: Host) -> None:
    async with client(host) as asking:
        answer = await asking.post({"inputs": "Count.", "parameters": {"max_new_tokens": 5}})
        assert answer.status_code == 200
    worker, engine = psutil.Process(host.worker_pid), engine_process(host)
    # An earlier test may have left a generation behind, which DJL Serving lets run to its end.
    deadline = time.monotonic() + 60
    seen: list[tuple[float, float, float]] = []
    while time.monotonic() < deadline:
        with measured([host.worker_pid]) as used:
            before = spent(worker), spent_stepping(engine)
            await asyncio.sleep(WINDOW)
            mine, stepping = spent(worker) - before[0], spent_stepping(engine) - before[1]
        everything = sum(seconds for role, seconds in used.items() if role != OTHERS)
        seen.append((mine / WINDOW, stepping / WINDOW, everything / WINDOW))
        # Beside the thread that drives it, an engine has threads of its own: gloo's wake up a hundred times a second.
        if mine + stepping < 0.01 * WINDOW and everything < 0.05 * WINDOW:
            return
    pytest.fail(f"cores in use while idle, by the worker, the thread that drives the engine, and all: {seen}")


async def test_a_worker_with_an_open_request_that_is_silent(host: Host) -> None:
    """In rolling batch Java calls again and again while a request is open: each call waits for news."""
    worker, engine = psutil.Process(host.worker_pid), engine_process(host)
    body = {"inputs": question("endless").prompt, "parameters": {"max_new_tokens": 400}, "stream": True}
    async with client(host) as asking:
        streamed = Streamed()
        asked = asyncio.create_task(asking.stream(body, streamed))
        await begun([streamed], lines=3)
        engine.suspend()
        try:
            # What the engine had said before has gone out.
            await asyncio.sleep(0.5)
            said, before = len(streamed.lines), spent(worker)
            await asyncio.sleep(WINDOW / 2)
            used = spent(worker) - before
            assert len(streamed.lines) == said
            assert not asked.done()
        finally:
            engine.resume()
        await asked
    assert len(streamed.documents) == 400
    assert used < 0.15 * WINDOW / 2
