"""The engine is killed at any moment, on every host: what is in flight gets an error, the engine comes back by itself.

Nine cases: vLLM's core is killed while it is idle, in the midst of prompts, and in mid-stream, behind the local server,
DJL's rolling batch and its async mode. LMI_KILL_ROUNDS says how many times in a row (`make kills`: ten); in further
rounds the engine's process, the core's parent, crashes, and the core does. A single round has six of the cases.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from ..kit.faults.kills import (
    SLOW_PREFILL,
    WORKER_APART,
    alive,
    ask,
    end,
    engine_core,
    family,
    in_flight,
    left_in,
    note,
    ping,
    served,
    shared_memory,
)
from ..kit.hosts.host import Client, Host, client, engine_process, eventually, model_directory, running

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]

ROUNDS = int(os.environ.get("LMI_KILL_ROUNDS", "1"))
SOON = 2.0 if ROUNDS > 1 else 30.0
"""Seconds within which each request in flight has its error, and one that comes later its refusal. Beside other tests
it only says that nobody waits for the engine to be back."""
BACK = 240.0

CORE = "vLLM's process EngineCore"
WAYS = ((CORE, signal.SIGKILL), ("the engine's process", signal.SIGSEGV), (CORE, signal.SIGSEGV))

Mortal = tuple[str, Host]


MOMENTS: dict[str, tuple[str, ...]] = {
    "server": ("idle", "prefill"),
    "rolling": ("idle", "stream"),
    "async": ("prefill", "stream"),
}
if ROUNDS > 1:
    MOMENTS = dict.fromkeys(MOMENTS, ("idle", "prefill", "stream"))


BEHIND_DJL = [pytest.param(kind, marks=pytest.mark.once) for kind in ("rolling", "async")]


@pytest.fixture(scope="module", params=["server", *BEHIND_DJL])
def mortal(
    request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mortal]:
    """A host of its own."""
    kind = request.param
    folder = tmp_path_factory.mktemp(kind)
    with running(kind, model_directory(demo_model, folder / "model", SLOW_PREFILL), folder / "log") as host:
        yield kind, host


@pytest.mark.timeout(900 * ROUNDS)
async def test_killing_the_engine(mortal: Mortal) -> None:
    kind, host = mortal
    for moment in MOMENTS[kind]:
        for number in range(ROUNDS):
            await one_death(kind, host, moment, *WAYS[number % len(WAYS)])


async def one_death(kind: str, host: Host, moment: str, victim: str, how: signal.Signals) -> None:
    async with client(host) as http:
        await eventually(lambda: served(http), BACK)
        worker = host.worker_pid
        engine = engine_process(host)
        gone = family(engine)
        flight = await in_flight(http, moment)
        killed = end(engine_core(host) if victim == CORE else engine, how)
        said = f"{victim} ended by signal {how.name}"
        answers = await asyncio.gather(*flight.tasks)
        for answer in answers:
            assert said in answer.error, answer
            assert answer.ended - killed < SOON
        for streamed in flight.streams:
            if streamed.status == 200:
                assert streamed.documents[-1]["token"]["id"] == -1
                assert streamed.documents[-1]["details"]["finish_reason"] == "error"
        refused, slowest = await refused_at_once(http)
        assert said in refused
        assert (await ping(host)) == (503 if kind == "server" else 200)
        if kind == "server":
            await refused_in_other_dialects(host)

        await eventually(lambda: served(http), BACK)
    back = time.monotonic()
    assert (await ping(host)) == 200
    assert host.worker_pid == worker
    assert engine_process(host).pid != engine.pid
    assert not alive(gone)
    note(
        host=kind,
        moment=moment,
        killed=f"{victim}, {how.name}",
        in_flight=len(answers),
        error=round(max((answer.ended - killed for answer in answers), default=0.0), 3),
        refused=round(slowest, 3),
        back=round(back - killed, 1),
    )


async def refused_at_once(http: Client) -> tuple[str, float]:
    """What new requests are told, which do not wait for the engine to be back; and the longest that one took.

    At idle the first may have come in before the death was noticed: then it has failed like those in flight.
    """
    slowest = 0.0
    while True:
        asked = time.monotonic()
        refused = await ask(http)
        slowest = max(slowest, time.monotonic() - asked)
        assert slowest < SOON
        assert refused.status_code == 424
        if "rebuilt" in (error := refused.json()["error"]):
            return str(error), slowest


async def refused_in_other_dialects(host: Host) -> None:
    """LMI's errors have the status 424 whatever they are; what others answer tells clients to try again."""
    async with httpx.AsyncClient() as http:
        refused = await http.post(f"{host.url}/v1/completions", json={"prompt": "x"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_unavailable")
        assert int(refused.headers["retry-after"]) > 0
        refused = await http.post(f"{host.url}/generate", json={"inputs": "x"})
        assert (refused.status_code, refused.json()["error_type"]) == (503, "generation")


async def test_nothing_is_left_of_what_is_killed(
    demo_model: Path, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of an engine nor, when their host has gone, of all: no process and none of the shared memory.

    But for a file of some bytes by which the processes of vLLM 0.32 find each other: its place cannot be chosen
    (vllm/utils/network_utils.py). It goes with the host.
    """
    for name, value in {**WORKER_APART, "TMPDIR": str(temporary)}.items():
        monkeypatch.setenv(name, value)

    def everything(host: Host) -> tuple[list[psutil.Process], set[Path], set[str]]:
        processes = family(engine_process(host))
        shared, files = shared_memory(processes), set(left_in(temporary))
        assert len(processes) >= 3
        assert shared
        assert files
        return processes, shared, files

    async def nothing_left() -> bool:
        left = files & set(left_in(temporary))
        return not left and not alive(processes) and not any(file.exists() for file in shared)

    with running("server", model_directory(demo_model, tmp_path / "model", {}), tmp_path / "log") as host:
        processes, shared, files = everything(host)
        files = {name for name in files if not Path(name).name.startswith("vllm_dist_")}
        processes[0].kill()
        await eventually(nothing_left, 10)
        async with client(host) as http:
            await eventually(lambda: served(http), BACK)
        processes, shared, files = everything(host)
        psutil.Process(host.worker_pid).kill()
        await eventually(nothing_left, 10)
