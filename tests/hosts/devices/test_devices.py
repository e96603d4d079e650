"""A model on two devices, each way that vLLM has, on each host: the answers of one device, adapters and sessions; one
of its processes killed, and all of it back.

A device is a process of the CPU build's. Of the ways, one host each is enough for `make test-hosts`.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from ...demo.model import QUESTIONS
from ...kit.faults.kills import ENDLESS, alive, ask, end, family, note, ping, served, well
from ...kit.hosts.follower import LOOPBACK, Follower, two_hosts
from ...kit.hosts.host import Host, Streamed, begun, client, engine_process, eventually, running
from ...kit.models.adapted import Adapted, adapted, adapted_directory

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio, pytest.mark.once]

ADAPTER = "all"
MOST = 8
HEADER = "X-Amzn-SageMaker-Session-Id"
SOON = 2.0
BACK = 240.0

WAYS = {
    "tensor": {"option.tensor_parallel_degree": "2"},
    "data": {"option.tensor_parallel_degree": "2", "option.data_parallel_size": "2"},
    "pipeline": {"option.tensor_parallel_degree": "1", "option.pipeline_parallel_degree": "2"},
    "hosts": {"option.tensor_parallel_degree": "1"},
    "stages": {"option.tensor_parallel_size": "1", "option.pipeline_parallel_size": "2"},
}
"""By name, the options."""
VICTIMS = {
    "tensor": "VLLM::Worker_TP1", "data": "VLLM::EngineCore_DP0", "pipeline": "VLLM::Worker_PP0",
    "hosts": "VLLM::Worker_TP1", "stages": "VLLM::Worker_PP1",
}  # fmt: skip
"""The process that is killed."""
ASKED = [one for one in QUESTIONS if one.tools is None and not one.endless]
HOSTS = ("hosts", "stages")
"""Of these, the ways of two hosts."""
KINDS = ("server", "rolling", "async")
SHORT = ("tensor", "rolling")


@dataclass
class Spread:
    way: str
    kind: str
    host: Host
    follower: Follower | None
    adapted: Adapted

    @property
    def processes(self) -> list[psutil.Process]:
        """All of the engine's, on both hosts where there are two."""
        found = family(engine_process(self.host))
        return found + (family(self.follower.engine) if self.follower else [])


@pytest.fixture(scope="module")
def adapters(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    return adapted(demo_model, tmp_path_factory.mktemp("adapters"), [ADAPTER], most=MOST, count=1)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((way, kind), id=f"{way}-{kind}", marks=[] if (way, kind) == SHORT else [pytest.mark.slow])
        for way in WAYS
        for kind in KINDS
    ],
)
def spread(
    request: pytest.FixtureRequest, demo_model: Path, adapters: Adapted, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Spread]:
    way, kind = request.param
    folder = tmp_path_factory.mktemp(kind)
    properties = {**WAYS[way], "option.sessions_path": str(folder / "sessions")}
    if way in HOSTS:
        properties |= two_hosts()
    directory = adapted_directory(demo_model, folder / "model", properties)
    (directory / "adapters").symlink_to(adapters.folders[ADAPTER].parent)
    with ExitStack() as stack:
        follower = None
        if way in HOSTS:
            follower = Follower(directory, folder / "follower.log")
            stack.callback(follower.stop)
        host = stack.enter_context(running(kind, directory, folder / "log", environment=LOOPBACK))
        yield Spread(way, kind, host, follower, adapters)


async def test_the_answers_of_one_device(spread: Spread) -> None:
    """To all that the model knows, at once, whole and streamed."""
    async with client(spread.host) as http:
        bodies = [{"inputs": one.prompt, "parameters": {"max_new_tokens": 200}} for one in ASKED]
        whole, streams = await asyncio.gather(
            asyncio.gather(*(http.post(body) for body in bodies)),
            asyncio.gather(*(http.stream({**body, "stream": True}) for body in bodies)),
        )
    answers = [one.answer for one in ASKED]
    assert [answer.json().get("generated_text") for answer in whole] == answers
    assert ["".join(one["token"]["text"] for one in stream.documents) for stream in streams] == answers


async def test_adapters_and_sessions(spread: Spread) -> None:
    known = spread.adapted.one(ADAPTER)
    url = f"{spread.host.url}/invocations"
    async with httpx.AsyncClient(verify=False, timeout=60) as http:
        made = await http.post(url, json={"requestType": "NEW_SESSION"})
        session = made.headers[HEADER].partition(";")[0]
        body = {"inputs": known.prompt, "adapters": ADAPTER, "parameters": {"max_new_tokens": MOST}}
        answer = await http.post(url, json=body, headers={HEADER: session})
        assert answer.json() == {"generated_text": known.text}
        closed = await http.post(url, json={"requestType": "CLOSE"}, headers={HEADER: session})
        assert closed.status_code == 200
        late = await http.post(url, json=body, headers={HEADER: session})
        assert late.status_code == 424


async def test_what_is_aborted_ends(spread: Spread) -> None:
    """A client that leaves, of which DJL tells nobody: so by its request's id."""
    name = f"{spread.way}-{spread.kind}-left-early".replace(" ", "-")
    url = f"{spread.host.url}/invocations"
    async with httpx.AsyncClient(verify=False, timeout=60) as http:
        body = {"inputs": ENDLESS, "parameters": {"max_new_tokens": 1900, "details": True}}
        running = asyncio.create_task(http.post(url, json=body, headers={"X-Request-Id": name}))
        for _ in range(50):
            await asyncio.sleep(0.1)
            ended = await http.post(url, json={"requestType": "CANCEL", "request_id": name})
            if ended.status_code == 200:
                break
        assert (await running).json() != {}
    async with client(spread.host) as more:
        assert well(await ask(more))


async def test_a_killed_process(spread: Spread) -> None:
    async with client(spread.host) as http:
        gone = spread.processes
        streams = [Streamed() for _ in range(4)]
        body = {"inputs": ENDLESS, "parameters": {"max_new_tokens": 1900}, "stream": True}
        tasks = [asyncio.create_task(http.stream(body, streamed)) for streamed in streams]
        await begun(streams)
        killed = end(victim(spread, gone), signal.SIGKILL)
        await asyncio.gather(*tasks)
        took = time.monotonic() - killed
        for streamed in streams:
            last = streamed.documents[-1]
            assert last["details"]["finish_reason"] == "error"
            assert "ended" in last["error"], last
            if spread.follower is not None:
                assert last["error"].startswith("node 1 (127.0.0.1): vLLM's process "), last
        assert took < SOON
        assert (await ping(spread.host)) == (503 if spread.kind == "server" else 200)
        if spread.kind == "server":
            async with httpx.AsyncClient() as plain:
                told = (await plain.get(f"{spread.host.url}/ping")).json()
            assert streams[0].documents[-1]["error"] in told["reason"]
        await eventually(lambda: served(http), BACK)
    back = time.monotonic()
    assert not alive(gone)
    await test_the_answers_of_one_device(spread)
    note(way=spread.way, host=spread.kind, error=round(took, 3), back=round(back - killed, 1))


def victim(spread: Spread, processes: list[psutil.Process]) -> psutil.Process:
    """The one that is to be killed."""
    titles = {" ".join(process.cmdline()).strip(): process for process in processes}
    return titles[VICTIMS[spread.way]]
