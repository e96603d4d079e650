"""A large body is read on a thread of its own: the host's own thread goes on. tests/robustness/test_body_gaps.py shows
what that is worth."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..kit.api.dialects import LARGE, decode_nothing, receive
from ..kit.api.errors import TimeLimitError
from ..kit.api.handler import (
    Exchange,
    PlainBatch,
    RollingBatch,
    Service,
    Whole,
    answer_of,
    application,
    started_service,
)
from ..kit.api.types import Delta, Finish, Request, Started
from ..kit.rows import each_row
from ..kit.user_code.engine import ScriptedEngine
from ..kit.waiting import until

END = Finish("eos", generated_tokens=1)


def body_of(size: int, **fields: Any) -> bytes:
    return json.dumps({"inputs": "a" * size, **fields}).encode()


FAILED = ["generated_text", "details", "error"]
LARGE_ONE = Request(body_of(LARGE), request_id="large")
SMALL_ONE = Request(body_of(LARGE - 100), request_id="small")
FAULTY = Request(body_of(LARGE, parameters={"temperature": float("nan")}))


class Reading:
    """Stops a service's reader at each request until the test lets it go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[tuple[str, str]] = []
        self.go_on = threading.Event()
        monkeypatch.setattr("lmi.handler.opening.receive", self._read)

    def _read(self, request: Request, *arguments: Any, **named: Any) -> Any:
        self.threads.append((request.request_id, threading.current_thread().name))
        if threading.current_thread() is not threading.main_thread():
            assert self.go_on.wait(30)
        return receive(request, *arguments, **named)


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reading]:
    made = Reading(monkeypatch)
    yield made
    made.go_on.set()


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def service(engine: ScriptedEngine, tmp_path: Path) -> Iterator[Service]:
    made = started_service(engine, tmp_path, max_queued_requests="0", max_rolling_batch_size="8")
    yield made
    made.close()


def opened(service: Service, request: Request) -> Exchange:
    exchange = service.open(request)
    assert isinstance(exchange, Exchange)
    return exchange


def test_who_reads(service: Service, engine: ScriptedEngine, reading: Reading) -> None:
    """Small bodies are read at once, large ones one after another beside that."""
    first, second = opened(service, LARGE_ONE), opened(service, replace(LARGE_ONE, request_id="second"))
    opened(service, SMALL_ONE)
    until(lambda: len(reading.threads) == 2)
    assert sorted(reading.threads) == [("large", "lmi-bodies"), ("small", "MainThread")]
    assert len(engine.generations) == 1
    reading.go_on.set()
    until(lambda: len(engine.generations) == 3)
    assert reading.threads[2:] == [("second", "lmi-bodies")]
    for ticket, exchange in ((1, first), (2, second)):
        engine.say(ticket, Started(1), Delta(0, "yes", finish=END))
        assert b"".join(exchange.records) == b'{"generated_text":"yes"}'
    assert service.admission.open == 1


def test_one_that_becomes_large_is_decoded_there(service: Service, engine: ScriptedEngine, reading: Reading) -> None:
    headers = {"content-encoding": "gzip"}
    opened(service, replace(LARGE_ONE, body=gzip.compress(LARGE_ONE.body), headers=headers))
    opened(service, replace(SMALL_ONE, body=gzip.compress(SMALL_ONE.body), headers=headers))
    until(lambda: len(reading.threads) == 2)
    assert sorted(reading.threads) == [("large", "lmi-bodies"), ("small", "MainThread")]
    reading.go_on.set()
    until(lambda: len(engine.generations) == 2)


def test_a_host_is_told_of_a_refusal(service: Service) -> None:
    """There is no step of the engine that would wake it."""
    told: list[Exchange] = []
    woken = threading.Event()
    service.listen(woken.set)
    exchange = service.open(FAULTY, told.append)
    assert isinstance(exchange, Exchange)
    assert woken.wait(30)
    assert told == [exchange]
    assert exchange.finished
    error = "parameters.temperature: expected a finite number, got NaN"
    assert json.loads(exchange.records[0]) == {"error": error, "code": 424}


def test_each_host_of_djl_gives_the_same_answers(service: Service, engine: ScriptedEngine) -> None:
    engine.submit_then = [Started(1), Delta(0, "yes", finish=END)]
    error = "parameters.temperature: expected a finite number, got NaN"
    batch = RollingBatch(service, poll_timeout=30)
    assert batch.step([LARGE_ONE])[0].data == b'{"generated_text":"yes"}'
    (frame,) = batch.step([FAULTY])
    assert frame.failure is not None
    assert (frame.last, frame.code, frame.failure.message) == (True, 424, error)
    plain = PlainBatch(service)
    assert [one.status for one in plain.answers([LARGE_ONE, FAULTY])] == [200, 424]
    whole = plain.answer(FAULTY)
    assert isinstance(whole, Whole)
    assert (whole.status, json.loads(whole.body)["error"]) == (424, error)


def test_one_that_is_aborted_meanwhile_reaches_no_engine(
    service: Service, engine: ScriptedEngine, reading: Reading
) -> None:
    read, waiting = opened(service, LARGE_ONE), opened(service, LARGE_ONE)
    until(lambda: reading.threads)
    for exchange in (read, waiting):
        exchange.abort()
    reading.go_on.set()
    last = opened(service, LARGE_ONE)
    until(lambda: last._tickets)
    assert len(engine.generations) == 1
    assert service.admission.open == 1


TEXT = json.dumps({"prompt": "a" * LARGE}).encode()
LAST = json.dumps({"temperature": 1, "filler": "a" * LARGE, "messages": []}).encode()


@each_row(
    ("path", "body", "form", "status"),
    [
        ("/invocations", LARGE_ONE.body, FAILED, 424),
        ("/invocations", TEXT, ["error"], 504),
        ("/invocations", LAST, ["error"], 504),
        ("/v1/completions", LARGE_ONE.body, ["error"], 504),
    ],
)
def test_one_that_waits_too_long(
    service: Service, reading: Reading, path: str, body: bytes, form: list[str], status: int
) -> None:
    """In its path's form, or in that of the fields at its ends: it is not read for that."""
    opened(service, LARGE_ONE)
    until(lambda: reading.threads)
    exchange = opened(service, replace(LARGE_ONE, path=path, body=body))
    service.admission.sweep(time.monotonic() + 10_000)
    assert exchange.finished
    assert isinstance(exchange.failure, TimeLimitError)
    assert [*json.loads(exchange.records[0])] == form
    assert exchange.call.reply.status == status


def test_one_that_is_not_admitted_is_not_read(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(8):
        opened(service, SMALL_ONE)
    decode_nothing(monkeypatch)
    refused = [answer_of(service.open(Request(body))) for body in (body_of(LARGE), LAST)]
    assert [(one.status, [*json.loads(one.body)]) for one in refused] == [
        (429, ["error", "code"]),
        (429, ["error"]),
    ]


class Body(bytes):
    """Says when nobody holds it any more."""

    gone: threading.Event | None = None

    def __del__(self) -> None:
        if self.gone is not None:
            self.gone.set()


def by_the_service(service: Service, request: Request) -> object:
    return opened(service, request)


def in_rolling_batch(service: Service, request: Request) -> object:
    batch = RollingBatch(service)
    batch.step([request])
    return batch


def by_the_local_server(service: Service, request: Request) -> object:
    async def ask() -> None:
        app = application(service)
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://local")
        async with app.router.lifespan_context(app), http:
            await http.post("/invocations", content=b"{}", headers={"content-type": "application/json"})

    async def read(*_: object, **__: object) -> bytes:
        (body,) = bodies
        bodies.clear()
        return body

    bodies = [request.body]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lmi.handler.server.app.read_body", read)
        threading.Thread(target=asyncio.run, args=(ask(),), daemon=True).start()
        until(lambda: not bodies)
    return None


ASKED = [by_the_service, in_rolling_batch, by_the_local_server]
"""In DJL's other modes djl_python keeps the Input until its call ends."""


@pytest.mark.parametrize("size", [LARGE, 20_000], ids=["large", "small"])
@pytest.mark.parametrize("logged", ["false", "true"])
@pytest.mark.parametrize("ask", ASKED)
def test_a_body_is_not_kept_for_as_long_as_its_answer_takes(
    engine: ScriptedEngine, tmp_path: Path, ask: Callable[[Service, Request], object], logged: str, size: int
) -> None:
    """The log has its beginning, the host what an error is to look like."""
    service = started_service(engine, tmp_path, log_requests=logged)
    body = Body(body_of(size))
    body.gone = gone = threading.Event()
    try:
        kept = ask(service, Request(body))
        del body
        until(lambda: engine.generations)
        assert gone.wait(10)
        assert service.admission.open
        del kept
    finally:
        service.close()
