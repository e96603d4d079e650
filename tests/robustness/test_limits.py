"""Limits as users meet them: a host with a real engine that has little room.

An engine that is stopped (SIGSTOP) keeps its requests open for as long as the test wants, and is one that hangs.
Clients that do not read are in tests/handler/server/test_on_connections.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..demo.model import question
from ..kit.hosts.host import Client, Host, Streamed, begun, client, engine_process, eventually, model_directory, running

pytestmark = [pytest.mark.once, pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]

ENDLESS = question("endless").prompt
ASKED = question("plain")
BODY = 20_000
TIME = 10
"""Seconds."""
TOKENS = 4000
OPTIONS = {
    "option.max_rolling_batch_size": "2",
    "option.max_queued_requests": "1",
    "option.max_prompt_tokens": "50",
    "option.max_tokens_in_flight": str(TOKENS),
    "option.max_body_bytes": str(BODY),
    "option.request_timeout": str(TIME),
}


@pytest.fixture(scope="module")
def server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("narrow")
    with running("server", model_directory(demo_model, folder / "model", OPTIONS), folder / "log") as host:
        yield host


@pytest.fixture(scope="module", params=["server", "rolling", "async"])
def narrow(
    request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Host]]:
    """Each host in turn, with little room."""
    kind = request.param
    if kind == "server":
        yield kind, request.getfixturevalue("server")
        return
    folder = tmp_path_factory.mktemp(f"narrow-{kind}")
    with running(kind, model_directory(demo_model, folder / "model", OPTIONS), folder / "log") as host:
        yield kind, host


@contextmanager
def stopped(host: Host) -> Iterator[None]:
    """The engine's process stands still meanwhile."""
    engine = engine_process(host)
    family = [engine, *engine.children(recursive=True)]
    for process in family:
        process.suspend()
    try:
        yield
    finally:
        for process in reversed(family):
            process.resume()


def endless(stream: bool = False, tokens: int = 1900) -> dict[str, Any]:
    return {"inputs": ENDLESS, "parameters": {"max_new_tokens": tokens}, "stream": stream}


def plain() -> dict[str, Any]:
    return {"inputs": ASKED.prompt, "parameters": {"max_new_tokens": 200}}


async def serves(http: Client) -> None:
    """A request is answered as ever."""
    answer = await http.post(plain())
    assert answer.json() == {"generated_text": ASKED.answer}, answer.text


async def test_queue(narrow: tuple[str, Host]) -> None:
    """Two run and one waits; the fourth is refused at once. In a rolling batch the host lets no third one come."""
    kind, host = narrow
    async with client(host) as http:
        with stopped(host):
            open_ones = [asyncio.create_task(http.post(plain())) for _ in range(3)]
            if kind != "rolling":

                async def full() -> bool:
                    refused = await http.post({**plain(), "inputs": ""})
                    return refused.status_code == 429

                await eventually(full, TIME / 2)
                refused = await http.post({"messages": [{"role": "user", "content": "Hi"}]})
                assert refused.status_code == 429
                assert refused.headers["retry-after"] == "1"
                told = refused.json()["error"]
                assert "3 requests are open" in (told["message"] if kind == "server" else told)
                assert not any(task.done() for task in open_ones)
        answers = await asyncio.gather(*open_ones)
        assert [answer.json() for answer in answers] == [{"generated_text": ASKED.answer}] * 3
        await serves(http)


async def test_body(narrow: tuple[str, Host]) -> None:
    _, host = narrow
    body = json.dumps(plain()).encode()
    async with client(host) as http:
        for size in (BODY - 1, BODY):
            answer = await http.post(body + b" " * (size - len(body)))
            assert answer.json() == {"generated_text": ASKED.answer}
        refused = await http.post(body + b" " * (BODY + 1 - len(body)))
        assert refused.status_code == 413
        assert refused.json() == {
            "error": f"the body: expected at most {BODY} bytes (option.max_body_bytes), got {BODY + 1}",
            "code": 413,
        }
        await serves(http)


async def test_prompt(server: Host) -> None:
    async with client(server) as http:
        for count, status in ((49, 200), (50, 200), (51, 400)):
            answer = await http.post({"prompt": [20] * count, "max_tokens": 1})
            assert answer.status_code == status, answer.text
        # Java escapes what is no letter.
        told = json.dumps(answer.json())
        assert "prompt: prompt is too long: 51 tokens > 50 maximum (option.max_prompt_tokens; " in told
        # Cut to fit, it does.
        for parameters, status in (({}, 424), ({"truncate": 50}, 200)):
            long = {"inputs": ENDLESS * 20, "parameters": {"max_new_tokens": 1, **parameters}}
            assert (await http.post(long)).status_code == status


async def test_tokens_in_flight(server: Host) -> None:
    """Of two sequences each: as many tokens as may be, one more, and one while others run."""
    async with client(server) as http:
        asked = {"prompt": ASKED.prompt, "n": 2, "temperature": 0}
        prompt = (await http.post({**asked, "max_tokens": 1})).json()["usage"]["prompt_tokens"]
        for over, status in ((-1, 200), (0, 200), (1, 400)):
            answer = await http.post({**asked, "max_tokens": TOKENS // 2 - prompt + over})
            assert answer.status_code == status, answer.text
        assert f"may come to {TOKENS + 2} tokens, expected at most {TOKENS}" in answer.text
        beside = Streamed()
        task = asyncio.create_task(http.stream(endless(True), beside))
        await begun([beside], lines=2)
        refused = await http.post({**asked, "max_tokens": TOKENS // 2 - prompt})
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert "tokens are in flight" in refused.text
        await serves(http)
        await task
        assert len(beside.documents) > 1
        assert (await http.post({**asked, "max_tokens": TOKENS // 2 - prompt})).status_code == 200


async def test_time(narrow: tuple[str, Host]) -> None:
    """An engine that hangs: whole and streamed requests get their error in time; it goes on, and so does the host."""
    kind, host = narrow
    async with client(host) as http:
        streamed = Streamed()
        streaming = asyncio.create_task(http.stream(endless(True), streamed))
        await begun([streamed], lines=2)
        with stopped(host):
            whole = await http.post({"messages": [{"role": "user", "content": ASKED.prompt}]})
            await streaming
        assert whole.status_code == 504
        told = whole.json()["error"]
        message = f"the request took longer than {TIME} seconds (option.request_timeout)"
        assert (told["message"] if kind == "server" else told) == message
        last = streamed.documents[-1]
        assert (last["error"], last["token"]["id"]) == (message, -1)
        await serves(http)


async def test_a_client_that_leaves_makes_room(server: Host) -> None:
    """Of two that run one leaves: the third is served before the other one has ended."""
    async with client(server) as http, client(server) as other:
        leaving = asyncio.create_task(http.stream(endless(True, 1000)))
        staying = asyncio.create_task(other.stream(endless(True, 1000)))
        await asyncio.sleep(0.2)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await serves(other)
        assert not staying.done()
        await staying
