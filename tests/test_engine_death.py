"""The engine is killed in mid-stream, on every host: what is in flight gets an error, the engine comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from lmi.model.demo_model import question

from .djl import hosting
from .endpoints import Client, Host, Streamed, begun, client, engine_process, eventually, model_directory, start

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]

ENDLESS = question("endless").prompt
ASKED = question("plain")


@pytest.fixture(params=["server", "rolling", "async"])
def mortal(request: pytest.FixtureRequest, demo_model: Path, tmp_path: Path) -> Iterator[tuple[str, Host]]:
    """A host of its own, for its engine will not live long."""
    kind = request.param
    if kind != "server" and (missing := hosting.available()):
        pytest.skip(missing)
    running = start(kind, model_directory(demo_model, tmp_path / "model", {}), tmp_path / "log")
    yield kind, running
    running.stop()


def endless(stream: bool) -> dict[str, Any]:
    return {"inputs": ENDLESS, "parameters": {"max_new_tokens": 1900}, "stream": stream}


async def test_killing_the_engine(mortal: tuple[str, Host]) -> None:
    kind, host = mortal
    worker = host.worker_pid
    async with client(host) as http:
        streams = [Streamed() for _ in range(4)]
        streaming = [asyncio.create_task(http.stream(endless(True), streamed)) for streamed in streams]
        waiting = asyncio.create_task(http.post(endless(False)))
        await begun(streams)
        engine = engine_process(host)
        engine.kill()
        killed = time.monotonic()
        whole = await waiting
        await asyncio.gather(*streaming)
        assert time.monotonic() - killed < 2
        assert whole.status_code == 424
        assert "SIGKILL" in whole.json()["error"]
        for streamed in streams:
            assert streamed.status == 200
            last = streamed.documents[-1]
            assert last["token"]["id"] == -1
            assert last["details"]["finish_reason"] == "error"
            assert "SIGKILL" in last["error"]
        await refused_at_once(http)
        if kind == "server":
            assert (await ping(host)) == 503

        async def served() -> bool:
            return (await http.post({"inputs": ASKED.prompt})).status_code == 200

        await eventually(served, 120)
        answer = await http.post({"inputs": ASKED.prompt, "parameters": {"max_new_tokens": 200}})
        assert answer.json() == {"generated_text": ASKED.answer}
    if kind == "server":
        assert (await ping(host)) == 200
    assert host.worker_pid == worker
    assert engine_process(host).pid != engine.pid


async def refused_at_once(http: Client) -> None:
    """New requests do not wait for the engine to be back."""
    asked = time.monotonic()
    refused = await http.post({"inputs": ASKED.prompt})
    assert time.monotonic() - asked < 2
    assert refused.status_code == 424
    assert "rebuilt" in refused.json()["error"]


async def ping(host: Host) -> int:
    async with httpx.AsyncClient(verify=False) as http:
        return (await http.get(f"{host.url}/ping")).status_code


async def test_no_process_outlives_a_killed_worker(demo_model: Path, tmp_path: Path) -> None:
    """The engine's process sees that its host is gone and ends, with all of its children."""
    running = start("server", model_directory(demo_model, tmp_path / "model", {}), tmp_path / "log")
    try:
        engine = engine_process(running)
        family = [engine, *engine.children(recursive=True)]
        psutil.Process(running.worker_pid).kill()

        async def all_gone() -> bool:
            return not any(process.is_running() and process.status() != "zombie" for process in family)

        await eventually(all_gone, 10)
    finally:
        running.stop()


async def test_a_client_that_leaves_ends_its_generation(demo_model: Path, tmp_path: Path) -> None:
    """With room for one sequence only, the next request is served as soon as the first one's client has gone."""
    directory = model_directory(demo_model, tmp_path / "model", {"option.max_rolling_batch_size": "1"})
    running = start("server", directory, tmp_path / "log")
    try:
        async with client(running) as http:
            left = Streamed()
            leaving = asyncio.create_task(http.stream(endless(True), left))
            await begun([left])
            queued = asyncio.create_task(http.post({"inputs": ASKED.prompt, "parameters": {"max_new_tokens": 200}}))
            leaving.cancel()
            answer = await queued
        assert answer.json() == {"generated_text": ASKED.answer}
        assert len(left.lines) < 1000
    finally:
        running.stop()
