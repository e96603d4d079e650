"""The worker is killed, or the host is: what clients see, what is left, what comes back
(docs/robustness.md).

The host is the real one, and so are the worker and its engine's process; the engine in it is one of a few lines, which
starts at once. The last test has vLLM.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from ..kit.djl import hosting
from ..kit.djl.hosting import DjlHost, HostError
from ..kit.faults.kills import alive, ask, family, left_in, ping, well
from ..kit.hosts.host import (
    Client,
    Streamed,
    begun,
    client,
    directory_without_model,
    djl_host,
    engine_process,
    eventually,
    model_directory,
    with_parrot,
)
from ..kit.paths import ENGINE_FAULTS

pytestmark = [
    pytest.mark.once,
    pytest.mark.djl,
    pytest.mark.slow,
    pytest.mark.anyio,
    pytest.mark.skipif(hosting.available() is not None, reason=str(hosting.available())),
]

STOPPED = "Backend Python process is stopped."
TIMEOUT = 3
"""chunked_read_timeout, in seconds."""

Start = Callable[..., DjlHost]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts hosts with the engine that is told what to do."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ENGINE_FAULTS), os.environ.get("PYTHONPATH", "")]).strip(":"))
    hosts: list[DjlHost] = []

    def start(mode: str, **properties: str) -> DjlHost:
        directory = directory_without_model(tmp_path / "model")
        host = djl_host(
            directory,
            tmp_path / f"log{len(hosts)}",
            mode=mode,
            properties=properties,
            environment={"SERVING_CHUNKED_READ_TIMEOUT": str(TIMEOUT)},
        )
        hosts.append(host)
        return host

    yield start
    for host in hosts:
        host.stop()


async def running(http: Client, count: int = 3) -> tuple[list[Streamed], list[asyncio.Task[Streamed]]]:
    """Streams that have begun and do not end."""
    streams = [Streamed() for _ in range(count)]
    body = {"inputs": "endless", "stream": True}
    tasks = [asyncio.create_task(http.stream(body, streamed)) for streamed in streams]
    await begun(streams)
    return streams, tasks


async def until_answered(http: Client) -> list[httpx.Response]:
    """Asks until it is answered; what it was told until then."""
    refused: list[httpx.Response] = []
    deadline = time.monotonic() + 60
    while (response := await http.post({"inputs": "hello"})).status_code != 200:
        assert time.monotonic() < deadline, response.text
        refused.append(response)
        await asyncio.sleep(0.05)
    return refused


@pytest.mark.timing
async def test_async_a_worker_that_is_killed_is_started_again(start: Start) -> None:
    """With retry_threshold; requests in flight end at once, those that come meanwhile are refused."""
    host = start("async", retry_threshold="10")
    worker = psutil.Process(host.worker_pid)
    old = family(worker)
    async with client(host) as http:
        streams, streaming = await running(http)
        waiting = asyncio.create_task(http.post({"inputs": "endless"}))
        await asyncio.sleep(0.2)
        worker.kill()
        killed = time.monotonic()
        whole = await waiting
        assert (whole.status_code, whole.json()["message"]) == (500, "Inference Engine Failure")
        # A stream that has begun ends with what is no record of it.
        await asyncio.gather(*streaming)
        for streamed in streams:
            *records, last = streamed.lines
            assert all("token" in json.loads(line) for line in records)
            assert (json.loads(last)["code"], json.loads(last)["message"]) == (500, "Inference Engine Failure")
        assert time.monotonic() - killed < 2
        refused = await until_answered(http)
        # A worker takes a second at least to start, and a request comes every twentieth.
        assert refused
        assert {(one.status_code, one.json()["message"]) for one in refused} == {(400, STOPPED)}
    assert await ping(host) == 200
    assert host.worker_pid != worker.pid
    await eventually_gone(old)


async def test_async_without_retry_threshold_the_first_death_is_the_models_last(start: Start) -> None:
    """DJL Serving's default is 0: the model is given up, and its health check says so, at which SageMaker acts."""
    host = start("async")
    psutil.Process(host.worker_pid).kill()
    async with client(host) as http:

        async def failed() -> bool:
            return await ping(host) == 500

        await eventually(failed, 30)
        response = await http.post({"inputs": "hello"})
        assert (response.status_code, "not ready" in response.json()["message"]) == (503, True)


async def dies_within_a_call(host: DjlHost, http: Client) -> None:
    """The clients of a rolling batch wait until chunked_read_timeout, when their connections are closed."""
    worker = psutil.Process(host.worker_pid)
    old = family(worker)
    _, streaming = await running(http)
    # Java calls again and again while requests run. The call that a stopped worker has got cannot end.
    worker.suspend()
    await asyncio.sleep(0.2)
    worker.kill()
    killed = time.monotonic()
    ended = await asyncio.gather(*streaming, return_exceptions=True)
    assert all(isinstance(error, httpx.TransportError) for error in ended)
    assert time.monotonic() - killed > TIMEOUT - 1
    await eventually_gone(old)


async def test_rolling_a_worker_that_dies_within_a_call_is_the_last(start: Start) -> None:
    host = start("rolling")
    async with client(host) as http:
        await dies_within_a_call(host, http)
        assert await ping(host) == 500
        assert (await http.post({"inputs": "hello"})).status_code == 503


async def test_rolling_with_retry_threshold(start: Start) -> None:
    """A worker that dies within a call is started again. One that dies between two calls never is: nobody notices, and
    the host calls itself healthy."""
    host = start("rolling", retry_threshold="10")
    first = host.worker_pid
    async with client(host) as http:
        await dies_within_a_call(host, http)
        await until_answered(http)
        assert await ping(host) == 200
        assert host.worker_pid != first
        worker = psutil.Process(host.worker_pid)
        old = family(worker)
        worker.kill()
        await eventually_gone(old)

        async def noticed() -> bool:
            # Until Java has read the end of what the worker writes, a request would start a call: it dies within that.
            return host.log_text().count(f"stopped - W-{worker.pid}") == 2

        await eventually(noticed)
        for _ in range(5):
            response = await http.post({"inputs": "hello"})
            assert (response.status_code, response.json()["message"]) == (400, STOPPED)
            await asyncio.sleep(0.2)
    assert await ping(host) == 200
    with pytest.raises(HostError, match="no Python worker"):
        host.worker_pid  # noqa: B018


@pytest.mark.parametrize(
    ("mode", "how"),
    [("rolling", signal.SIGTERM), ("async", signal.SIGKILL), ("dynamic", signal.SIGTERM)],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else value,
)
async def test_nothing_outlives_the_host(start: Start, mode: str, how: signal.Signals) -> None:
    """Connections close, worker and engine end, whatever they are at; a host on the same folder serves again."""
    host = start(mode)
    everyone = family(psutil.Process(host.pid))
    assert len(everyone) == 3
    async with client(host) as http:
        waiting = asyncio.create_task(http.post({"inputs": "endless"}))

        async def begun() -> bool:
            return bool(engine_process(host).cpu_times().user > 0)

        await eventually(begun)
        await asyncio.sleep(0.5)
        assert not waiting.done()
        os.kill(host.pid, how)
        with pytest.raises(httpx.TransportError):
            await waiting
    await eventually_gone(everyone)


async def eventually_gone(processes: list[psutil.Process]) -> None:
    """Within ten seconds."""

    async def gone() -> bool:
        return not alive(processes)

    await eventually(gone, 10)


@pytest.mark.engine
async def test_a_host_that_is_killed_and_started_again_serves(
    demo_model: Path, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With vLLM in mid-stream: no process is left, and no socket, and what Java leaves in its folder does not
    hinder its successor."""
    directory = model_directory(demo_model, tmp_path / "model", {})
    monkeypatch.setenv("TMPDIR", str(temporary))
    with djl_host(directory, tmp_path / "log1", mode="rolling", temporary=temporary) as host:
        everyone = family(psutil.Process(host.pid))
        assert len(everyone) >= 4
        async with client(host) as http:
            streamed = Streamed()
            body = {"inputs": "Count up.", "parameters": {"max_new_tokens": 1900}, "stream": True}
            streaming = asyncio.create_task(http.stream(body, streamed))
            await begun([streamed])
            os.kill(host.pid, signal.SIGKILL)
            with pytest.raises(httpx.TransportError):
                await streaming
        await eventually_gone(everyone)

        assert not left_in(temporary)
    # Its successor's engine is a parrot.
    with djl_host(
        directory, tmp_path / "log2", mode="rolling", temporary=temporary, environment=with_parrot()
    ) as again:
        async with client(again) as http:
            assert well(await ask(http))
