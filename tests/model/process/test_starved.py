"""A real engine that gets no time or no memory, behind the local server: nobody waits in vain, it comes back by itself.

tests/model/process/test_engine_faults.py has the same, and much more, of an engine that fails as it is told to.
"""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from ...kit.faults.kills import alive, ask, end, engine_core, family, in_flight, well
from ...kit.hosts.host import Client, Host, client, engine_process, eventually, model_directory, start

pytestmark = [pytest.mark.engine, pytest.mark.anyio, pytest.mark.slow]

STALL = 10.0
"""Seconds; a step of the demo model takes milliseconds."""
BACK = 240.0

Serve = Callable[[Mapping[str, str]], Host]


@pytest.fixture
def serve(demo_model: Path, tmp_path: Path) -> Iterator[Serve]:
    """Starts a host with such options."""
    started: list[Host] = []

    def serve(options: Mapping[str, str]) -> Host:
        started.append(start("server", model_directory(demo_model, tmp_path / "model", options), tmp_path / "log"))
        return started[-1]

    yield serve
    for host in started:
        host.stop()


async def served_again(http: Client) -> None:
    async def served() -> bool:
        await asyncio.sleep(0.2)
        return well(await ask(http))

    await eventually(served, BACK)


async def test_a_core_that_stands_still_is_killed_and_rebuilt(serve: Serve) -> None:
    host = serve({"option.engine_stall_timeout": f"{STALL:g}"})
    async with client(host) as http:
        worker, gone = host.worker_pid, family(engine_process(host))
        flight = await in_flight(http, "stream")
        stopped = end(engine_core(host), signal.SIGSTOP)
        answers = await asyncio.gather(*flight.tasks)
        for answer in answers:
            assert f"the engine has made no step for {STALL:g} s (option.engine_stall_timeout)" in answer.error
            assert STALL / 2 < answer.ended - stopped < STALL + 30
        await served_again(http)
    assert host.worker_pid == worker
    assert not alive(gone)


async def test_a_core_without_memory_answers_or_is_rebuilt(serve: Serve) -> None:
    """Its address space may not grow any more: long prompts fail, by whatever then fails first in it."""
    host = serve({"option.max_model_len": "2048", "option.max_num_batched_tokens": "8192"})
    async with client(host) as http:
        assert well(await ask(http))
        worker, core = host.worker_pid, engine_core(host)
        # vLLM may compute in processes of the core's.
        for one in (core, *core.children(recursive=True)):
            one.rlimit(psutil.RLIMIT_AS, (one.memory_info().vms, resource.RLIM_INFINITY))
        long = {"parameters": {"max_new_tokens": 100}}
        prompts = [f"{uuid4()} " + "Count up. " * 300 for _ in range(32)]
        # Nothing hangs: each has an answer or an error, and the next ones too.
        answers = await asyncio.wait_for(
            asyncio.gather(*(http.post({"inputs": prompt, **long}) for prompt in prompts)), BACK
        )
        assert {answer.status_code for answer in answers} <= {200, 424}
        failed = [answer.json()["error"] for answer in answers if answer.status_code == 424]
        assert failed, "the limit has not been felt"
        assert all(failed)
        await served_again(http)
    assert host.worker_pid == worker
