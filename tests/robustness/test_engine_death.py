"""The engine is killed at any moment, on every host: what is in flight gets an error, the engine comes back by itself.

Nine cases: vLLM's core is killed while it is idle, in the midst of prompts, and in mid-stream, behind the local server,
DJL's rolling batch and its async mode. LMI_KILL_ROUNDS says how many times in a row (`make kills`: ten); in further
rounds the engine's process, the core's parent, crashes, and the core does.
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

from ..kit.djl import hosting
from ..kit.faults.kills import (
    ASKED,
    ENDLESS,
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
    shared_memory,
    well,
)
from ..kit.hosts.host import Client, Host, Streamed, begun, client, engine_process, eventually, model_directory, start

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]

ROUNDS = int(os.environ.get("LMI_KILL_ROUNDS", "1"))
SOON = 2.0 if ROUNDS > 1 else 30.0
"""Seconds within which each request in flight has its error, and one that comes later its refusal. Beside other tests
it only says that nobody waits for the engine to be back."""
BACK = 240.0

CORE = "vLLM's process EngineCore"
WAYS = ((CORE, signal.SIGKILL), ("the engine's process", signal.SIGSEGV), (CORE, signal.SIGSEGV))

Mortal = tuple[str, Host]


BEHIND_DJL = [pytest.param(kind, marks=pytest.mark.once) for kind in ("rolling", "async")]


@pytest.fixture(scope="module", params=["server", *BEHIND_DJL])
def mortal(
    request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mortal]:
    """A host of its own."""
    kind = request.param
    if kind != "server" and (missing := hosting.available()):
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp(kind)
    running = start(kind, model_directory(demo_model, folder / "model", SLOW_PREFILL), folder / "log")
    yield kind, running
    running.stop()


@pytest.mark.timeout(300 * ROUNDS)
@pytest.mark.parametrize("moment", ["idle", "prefill", "stream"])
async def test_killing_the_engine(mortal: Mortal, moment: str) -> None:
    for number in range(ROUNDS):
        await one_death(*mortal, moment, *WAYS[number % len(WAYS)])


async def one_death(kind: str, host: Host, moment: str, victim: str, how: signal.Signals) -> None:
    async with client(host) as http:

        async def served() -> bool:
            await asyncio.sleep(0.2)
            return well(await ask(http))

        await eventually(served, BACK)
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

        await eventually(served, BACK)
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


async def test_nothing_outlives_a_killed_worker(
    demo_model: Path, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's process sees that its host is gone and ends, with all of its children and their shared memory."""
    for name, value in {**WORKER_APART, "TMPDIR": str(temporary)}.items():
        monkeypatch.setenv(name, value)
    running = start("server", model_directory(demo_model, tmp_path / "model", {}), tmp_path / "log")
    try:
        everyone = family(engine_process(running))
        shared = shared_memory(everyone)
        assert len(everyone) >= 3
        assert shared
        psutil.Process(running.worker_pid).kill()

        async def nothing_left() -> bool:
            return not alive(everyone) and not left_in(temporary) and not any(file.exists() for file in shared)

        await eventually(nothing_left, 10)
    finally:
        running.stop()


async def test_nothing_of_a_killed_engine_is_left(
    demo_model: Path, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not its shared memory either, which nobody has removed who was killed.

    All but a file of some bytes by which the processes of vLLM 0.32 find each other: its place cannot be chosen
    (vllm/utils/network_utils.py).
    """
    for name, value in {**WORKER_APART, "TMPDIR": str(temporary)}.items():
        monkeypatch.setenv(name, value)
    running = start("server", model_directory(demo_model, tmp_path / "model", {}), tmp_path / "log")
    try:
        old = [name for name in left_in(temporary) if not Path(name).name.startswith("vllm_dist_")]
        everyone = family(engine_process(running))
        shared = shared_memory(everyone)
        assert old
        assert shared
        engine_process(running).kill()

        async def nothing_left() -> bool:
            left = not set(left_in(temporary)) & set(old)
            return left and not alive(everyone) and not any(file.exists() for file in shared)

        await eventually(nothing_left, 10)
    finally:
        running.stop()


async def test_a_client_that_leaves_ends_its_generation(demo_model: Path, tmp_path: Path) -> None:
    """With room for one sequence only, the next request is served as soon as the first one's client has gone."""
    directory = model_directory(demo_model, tmp_path / "model", {"option.max_rolling_batch_size": "1"})
    running = start("server", directory, tmp_path / "log")
    try:
        async with client(running) as http:
            left = Streamed()
            body = {"inputs": ENDLESS, "parameters": {"max_new_tokens": 1900}, "stream": True}
            leaving = asyncio.create_task(http.stream(body, left))
            await begun([left])
            queued = asyncio.create_task(http.post({"inputs": ASKED.prompt, "parameters": {"max_new_tokens": 200}}))
            leaving.cancel()
            answer = await queued
        assert answer.json() == {"generated_text": ASKED.answer}
        assert len(left.lines) < 1000
    finally:
        running.stop()
