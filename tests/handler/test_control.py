"""CANCEL: who ends what, how the ended one ends, and who is told what. (Sessions: tests/handler/sessions.)

tests/hosts/sessions has it behind the hosts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..kit.api.handler import Access, Exchange, RollingBatch, Service, answer_of, started_service
from ..kit.api.types import Delta, Finish, Request, Started, Token
from ..kit.hosts.local_server import Make, serving
from ..kit.paths import USER_CODE
from ..kit.user_code.engine import ScriptedEngine
from ..kit.waiting import until

NAME = "0123456789abcdef"
OTHER = "fedcba9876543210"
HELLO = {"inputs": "Hi"}
STREAM = {"inputs": "Hi", "stream": True}
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
END = Finish("eos", generated_tokens=1)
WORD = Delta(0, "Hello", (Token(7, "Hello", -0.5),))
SAID = "the request was cancelled (CANCEL)"


class Place:
    """A service on an engine that says what the test tells it to."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.engine = ScriptedEngine()
        self.service: Service = started_service(self.engine, folder, **options)

    def open(self, body: object = HELLO, request_id: str = NAME, dialect: str = "") -> Exchange:
        attributes = {"dialect": dialect} if dialect else {}
        return self.service.open(Request(json.dumps(body).encode(), attributes=attributes, request_id=request_id))

    def cancel(self, request_id: object = NAME, **more: object) -> tuple[int, Any]:
        """Status and body of the answer, which is there at once."""
        body = {"requestType": "CANCEL", "request_id": request_id, **more}
        answer = answer_of(self.service.open(Request(json.dumps(body).encode(), request_id="the one that cancels")))
        return answer.status, json.loads(answer.body)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Place]]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    made: list[Place] = []

    def one(**options: str) -> Place:
        made.append(Place(tmp_path, **options))
        return made[-1]

    yield one
    for place in made:
        place.service.close()
    for name in ("mine", "toy_cancelled"):
        sys.modules.pop(name, None)


DONE = (200, {"result": f"Request {NAME} cancelled"})


@pytest.mark.parametrize(
    ("body", "status"), [(HELLO, 424), (STREAM, 424), (CHAT, 499), ({**CHAT, "stream": True}, 499)]
)
def test_one_that_has_not_begun_ends_with_an_error(make: Callable[..., Place], body: object, status: int) -> None:
    place = make()
    exchange = place.open(body)
    assert place.cancel() == DONE
    assert exchange.finished
    assert not place.engine.sinks
    assert place.service.admission.open == 0
    assert exchange.call.reply.status == status
    assert SAID in exchange.take_all().decode()
    assert place.service.metrics.errors == {"request_cancelled": 1}


@pytest.mark.parametrize("body", [STREAM, {**CHAT, "stream": True}])
def test_a_stream_ends_with_a_last_record(make: Callable[..., Place], body: object) -> None:
    place = make()
    exchange = place.open(body)
    place.engine.say(0, Started(1), WORD)
    exchange.take_all()
    assert place.cancel() == DONE
    assert exchange.finished
    assert SAID in exchange.take_all().decode()
    assert not place.engine.sinks


def test_all_of_one_id_and_no_other(make: Callable[..., Place]) -> None:
    place = make()
    named = [place.open(), place.open(STREAM)]
    other = place.open(request_id=OTHER)
    assert place.cancel() == DONE
    assert [exchange.finished for exchange in (*named, other)] == [True, True, False]
    place.engine.say(2, Started(1), Delta(0, "there", finish=END))
    assert other.take_all() == b'{"generated_text":"there"}'


def test_one_that_is_not_running_is_not_found(make: Callable[..., Place]) -> None:
    place = make()
    exchange = place.open()
    place.engine.say(0, Started(1), Delta(0, "there", finish=END))
    assert exchange.finished
    message = f"request_id: no request {NAME} is running here"
    assert place.cancel() == (424, {"error": message, "code": 424})
    assert place.cancel("x" * 5000)[0] == 424


@pytest.mark.parametrize(
    ("headers", "options"),
    [({"x-amzn-sagemaker-session-id": "any"}, {}), ({}, {"output_formatter": "toy_cancelled:Toy"})],
    ids=["in a session", "beside a user's dialect"],
)
def test_one_does_not_find_itself(
    make: Callable[..., Place], tmp_path: Path, headers: dict[str, str], options: dict[str, str]
) -> None:
    (tmp_path / "toy_cancelled.py").write_text((USER_CODE / "toy.py").read_text())
    place = make(**options)
    body = json.dumps({"requestType": "CANCEL", "request_id": NAME}).encode()

    def cancelled() -> bytes:
        """By one with the id that it cancels."""
        answer = answer_of(place.service.open(Request(body, headers=headers, request_id=NAME)))
        return answer.body

    message = f"request_id: no request {NAME} is running here"
    assert json.loads(cancelled()) == {"error": message, "code": 424}
    running = place.open()
    assert json.loads(cancelled()) == DONE[1]
    until(lambda: running.finished)


@pytest.mark.parametrize("given", ["0123456789abcde", "", None, 5, ["0123456789abcdef"]])
def test_a_short_id_cancels_nothing(make: Callable[..., Place], given: Any) -> None:
    place = make()
    running = place.open(request_id=given if isinstance(given, str) else NAME)
    status, answer = place.cancel(given)
    assert status == 424
    assert answer["error"].startswith("request_id: expected the id of a request, of 16 characters or more")
    assert not running.finished


def test_a_field_that_is_unknown_is_refused_where_that_is_asked_for(make: Callable[..., Place]) -> None:
    place = make(unknown_parameters="error")
    status, answer = place.cancel(id=NAME)
    assert (status, "id: unknown field" in answer["error"]) == (424, True)


def test_it_is_taken_where_nothing_else_is(make: Callable[..., Place]) -> None:
    place = make(max_rolling_batch_size="1", max_queued_requests="0")
    place.open()
    refused = answer_of(place.service.open(Request(b'{"inputs": "Hi", "requestType": "CANCEL"}')))
    assert refused.status == 429
    for kind in ("NEW_SESSION", "CLOSE"):
        refused = answer_of(place.service.open(Request(json.dumps({"requestType": kind}).encode())))
        assert refused.status == 429
    assert place.cancel() == DONE
    assert place.service.admission.open == 0


HANGING = """
import time

def slow(response):
    time.sleep(2)
    return response
"""


def test_user_code_that_hangs_is_left(make: Callable[..., Place], tmp_path: Path) -> None:
    """Neither waits for it: the request that is cancelled, the one that cancels."""
    (tmp_path / "mine.py").write_text(HANGING)
    place = make(output_formatter="mine:slow", user_code_threads="1")
    exchange = place.open()
    until(lambda: place.engine.sinks)
    place.engine.say(0, Started(1), Delta(0, "there", finish=END))
    time.sleep(0.1)
    assert place.cancel() == DONE
    until(lambda: exchange.finished)
    assert SAID in exchange.take_all().decode()


GREEDY = """
import time

class Greedy:
    NAME, BODY_FIELD, ROUTES = "greedy", "", ()

    def matches(self, payload, request, settings):
        time.sleep(2)
        return True

    parse = refuse = lambda self, *_: None
"""


@pytest.mark.parametrize("dialect", ["", "greedy"])
def test_it_is_not_for_a_dialect_of_the_users(make: Callable[..., Place], tmp_path: Path, dialect: str) -> None:
    """Which has every thread, and whose requests take every place."""
    (tmp_path / "mine.py").write_text(GREEDY)
    limits = {"user_code_threads": "1", "max_rolling_batch_size": "1", "max_queued_requests": "0"}
    place = make(output_formatter="mine:Greedy", dialect=dialect, **limits)
    exchange = place.open()
    assert place.cancel() == DONE
    until(lambda: exchange.finished)
    assert SAID in exchange.take_all().decode()
    assert place.cancel()[0] == 424


def test_in_rolling_batch_a_call_has_both(make: Callable[..., Place]) -> None:
    """The request that cancels stands behind the one that it cancels, in one call of Java's."""
    place = make()
    batch = RollingBatch(place.service, 0.0)
    body = json.dumps({"requestType": "CANCEL", "request_id": NAME}).encode()
    running, done = batch.step([Request(json.dumps(HELLO).encode(), request_id=NAME), Request(body)])
    assert (running.last, running.code) == (True, 424)
    assert running.failure is not None
    assert running.failure.message == SAID
    assert (done.last, done.failure, json.loads(done.data)) == (True, None, DONE[1])
    assert batch.step([]) == []


# --- The local server's route ---


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Make]:
    with serving(tmp_path) as make:
        yield make


KEY = "a-key-of-some-length"


def test_the_local_servers_route(running: Make) -> None:
    server = running()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as http, ThreadPoolExecutor() as pool:
        stream = pool.submit(http.post, "/invocations", json=STREAM, headers={"x-request-id": NAME})
        until(lambda: server.engine.sinks)
        server.engine.say(0, Started(1), WORD)
        done = http.post("/cancel", json={"request_id": NAME})
        assert (done.status_code, done.json()) == DONE
        answer = stream.result()
        assert answer.headers["x-request-id"] == NAME
        assert SAID in answer.text
        assert not server.engine.sinks
        again = http.post("/cancel", json={"requestType": "CANCEL", "request_id": NAME})
        assert (again.status_code, again.json()["message"]) == (404, f"request_id: no request {NAME} is running here")
        for body in (b'{"request_id": "short"}', b"{}", b"[]", b"", b"x"):
            assert http.post("/cancel", content=body).status_code == 400
        assert http.post("/cancel", content=b"x" * 70_000).status_code == 413
        assert http.get("/cancel").status_code == 405


def test_nobody_cancels_without_the_key(running: Make) -> None:
    server = running(access=Access(KEY), max_rolling_batch_size="1", max_queued_requests="0")
    cancel = {"requestType": "CANCEL", "request_id": NAME}
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as http, ThreadPoolExecutor() as pool:
        keyed = {"authorization": f"Bearer {KEY}", "x-request-id": NAME}
        stream = pool.submit(http.post, "/invocations", json=STREAM, headers=keyed)
        until(lambda: server.engine.sinks)
        for path in ("/cancel", "/invocations"):
            assert http.post(path, json=cancel).status_code == 401
        assert server.engine.sinks
        # Beside one that runs there is room for no other, but for the one that ends it.
        assert http.post("/invocations", json=HELLO, headers=keyed).status_code == 429
        done = http.post("/invocations", json=cancel, headers={"api-key": KEY})
        assert (done.status_code, done.json()) == DONE
        assert SAID in stream.result().text
