"""How the local server ends: what runs goes on for a while, then gets an error; no process is left."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from lmi.handler.server.shutdown import Shutdown

from ...demo.model import question
from ...kit.api.handler import answer_of, application, started_service
from ...kit.api.types import Delta, Request, Started
from ...kit.hosts.host import Server, Streamed, begun, client, engine_process, eventually, model_directory, with_parrot
from ...kit.hosts.local_server import serving
from ...kit.installed import LMI
from ...kit.user_code.engine import ScriptedEngine
from ...kit.waiting import until

pytestmark = pytest.mark.once

LONG = question("long")
ENDLESS = question("endless").prompt


@pytest.mark.anyio
async def test_a_server_that_stops_takes_nothing_new_and_is_not_healthy() -> None:
    service = started_service(ScriptedEngine())
    running = service.open(Request(b'{"inputs": "Hi"}'))
    service.stop()
    transport = httpx.ASGITransport(application(service))
    async with transport, httpx.AsyncClient(transport=transport, base_url="http://local") as http:
        assert (await http.get("/ping")).status_code == 503
        assert (await http.get("/health")).status_code == 503
    refused = answer_of(service.open(Request(b'{"messages": []}', path="/v1/chat/completions")))
    assert refused.status == 503
    assert json.loads(refused.body)["error"]["message"] == "the server is shutting down"
    assert not running.finished


class Looping:
    should_exit = False

    def run(self) -> None:
        until(lambda: self.should_exit)


def test_an_engine_that_is_given_up_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a signal does."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    ending, stopped = Shutdown(ScriptedEngine()), list[bool]()
    threading.Timer(0.1, ending.lose, ["there is no device"]).start()
    ending.run(Looping(), lambda: stopped.append(True))
    assert (ending.lost, ending.asked, stopped) == ("there is no device", False, [True])


def test_what_runs_beyond_the_grace_is_told_so(tmp_path: Path) -> None:
    with serving(tmp_path) as make:
        server = make(grace=0.1)
        with server.connect() as sock:
            ticket = server.ask(sock, {"messages": [{"role": "user", "content": "Hi"}], "stream": True})
            server.engine.say(ticket, Started(1), Delta(0, "Hello"))
            server.uvicorn.should_exit = True
            data = b""
            while part := sock.recv(1 << 16):
                data += part
    assert b'"message":"the server is shutting down"' in data
    assert b"data: [DONE]" in data


Start = Callable[..., Server]


@pytest.fixture
def start(demo_model: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts a server with arguments for the command line."""
    started: list[Server] = []

    def begin(*arguments: str, within: Sequence[str] = (), real: bool = False) -> Server:
        directory = model_directory(demo_model, tmp_path / "model", {})
        started.append(Server(directory, tmp_path / "log", arguments, within, {} if real else with_parrot()))
        return started[-1]

    yield begin
    for server in started:
        server.stop()


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


async def ended(server: Server, family: list[psutil.Process]) -> int:
    """The server's exit status, once it and its engine are gone."""
    status = await asyncio.to_thread(server.process.wait, 60)

    async def gone() -> bool:
        return not alive(family)

    await eventually(gone, 10)
    return status


def family_of(server: Server) -> list[psutil.Process]:
    engine = engine_process(server)
    return [engine, *engine.children(recursive=True)]


@pytest.mark.engine
@pytest.mark.anyio
async def test_what_runs_goes_on_to_its_end(start: Start) -> None:
    server = start()
    family = family_of(server)
    async with client(server) as http:
        streamed = Streamed()
        body = {"inputs": ENDLESS, "parameters": {"max_new_tokens": 1500}, "stream": True}
        streaming = asyncio.create_task(http.stream(body, streamed))
        await begun([streamed])
        whole = asyncio.create_task(http.post({"inputs": LONG.prompt, "parameters": {"max_new_tokens": 400}}))

        async def both_run() -> bool:
            async with httpx.AsyncClient() as other:
                return "lmi_requests_in_flight 2" in (await other.get(f"{server.url}/metrics")).text

        await eventually(both_run)
        server.process.terminate()

        async def refused() -> bool:
            try:
                async with httpx.AsyncClient() as other:
                    await other.get(f"{server.url}/ping")
            except httpx.TransportError:
                return True
            return False

        await eventually(refused)
        assert not streaming.done(), "it was to be cut short in the middle"
        await streaming
        answer = await whole
    assert answer.json() == {"generated_text": LONG.answer}
    assert len(streamed.documents) == 1500
    assert "generated_text" in streamed.documents[-1]
    assert await ended(server, family) == 0


@pytest.mark.engine
@pytest.mark.anyio
async def test_what_runs_beyond_the_limit_gets_an_error(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMI_LOG_FORMAT", "json")
    server = start("--grace", "0.2")
    family = family_of(server)
    chat = {"messages": [{"role": "user", "content": ENDLESS}], "stream": True}
    async with client(server) as http, httpx.AsyncClient(base_url=server.url, timeout=60) as plain:
        streamed = Streamed()
        body = {"inputs": ENDLESS, "parameters": {"max_new_tokens": 1900}}
        tasks = [
            asyncio.create_task(http.stream({**body, "stream": True}, streamed)),
            asyncio.create_task(plain.post("/v1/chat/completions", json=chat)),
            asyncio.create_task(http.post(body)),
        ]
        await begun([streamed])

        async def all_there() -> bool:
            return "lmi_requests_in_flight 3" in (await plain.get("/metrics")).text

        await eventually(all_there)
        server.process.send_signal(signal.SIGINT)
        _, events, whole = await asyncio.gather(*tasks)
    last = streamed.documents[-1]
    assert last["error"] == "the server is shutting down"
    assert last["details"]["finish_reason"] == "error"
    assert isinstance(events, httpx.Response)
    assert isinstance(whole, httpx.Response)
    *_, error, done, end = events.text.split("\n\n")
    assert json.loads(error.removeprefix("data: "))["error"]["message"] == "the server is shutting down"
    assert (done, end) == ("data: [DONE]", "")
    assert whole.status_code == 424
    assert whole.json()["error"] == "the server is shutting down"
    assert await ended(server, family) == 0
    ours = [json.loads(line) for line in server.log_text().splitlines() if line.startswith("{")]
    told = {entry["message"]: entry for entry in ours}
    assert told["shutting down: aborting 3 requests"]["level"] == "WARNING"
    failed = [entry for entry in ours if entry["message"].endswith("engine_unavailable: the server is shutting down")]
    assert len({entry["request_id"] for entry in failed}) == 3, server.log_text()


@pytest.mark.engine
@pytest.mark.anyio
async def test_ctrl_c_reaches_the_server_and_not_its_engine(start: Start) -> None:
    """Both have the terminal: what runs goes on to its end, and what the engine logs there does not stop it."""
    server = start("--grace", "120", "--verbose", within=[sys.executable, "-m", "tests.kit.terminal"], real=True)
    serving = psutil.Process(server.worker_pid)
    family = [serving, *family_of(server)]
    assert serving.terminal() is not None
    if sys.version_info >= (3, 11):
        assert [process.terminal() for process in family] == [serving.terminal()] * len(family)
    async with client(server) as http:
        streamed = Streamed()
        body = {"inputs": ENDLESS, "parameters": {"max_new_tokens": 1500}, "stream": True}
        streaming = asyncio.create_task(http.stream(body, streamed))
        await begun([streamed])
        server.process.send_signal(signal.SIGINT)
        await streaming
    assert len(streamed.documents) == 1500
    assert "generated_text" in streamed.documents[-1]
    assert await ended(server, family) == 0
    assert "Using max model len" in server.log_text(), "the engine was to log on the terminal"


@pytest.mark.engine
@pytest.mark.anyio
async def test_a_second_signal_ends_it_at_once(start: Start) -> None:
    server = start("--grace", "600")
    family = family_of(server)
    async with client(server) as http:
        streamed = Streamed()
        body = {"inputs": ENDLESS, "parameters": {"max_new_tokens": 1900, "ignore_eos_token": True}, "stream": True}
        streaming = asyncio.create_task(http.stream(body, streamed))
        await begun([streamed])
        server.process.terminate()
        await asyncio.sleep(0.1)
        server.process.terminate()
        with pytest.raises(httpx.TransportError):
            await streaming
    assert await ended(server, family) == 128 + signal.SIGTERM


LOADS_LONG = """
import time
from pathlib import Path

Path(__file__).with_name("loading").touch()
time.sleep(60)
"""


@pytest.mark.anyio
async def test_a_signal_while_code_of_the_users_loads(tmp_path: Path) -> None:
    """The status is 0, and that code is not what ended it."""
    (tmp_path / "serving.properties").write_text("engine=Python\n")
    (tmp_path / "model.py").write_text(LOADS_LONG)
    command = [*LMI, "serve", str(tmp_path), "--port", "0"]
    with (tmp_path / "log").open("w") as log:
        process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:

        async def loading() -> bool:
            return (tmp_path / "loading").exists()

        await eventually(loading)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0
        said = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("lmi: ")]
        assert [line.partition(" for ")[0] for line in said] == ["lmi: starting the engine"]
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
