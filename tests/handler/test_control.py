"""CANCEL: who ends what, how the ended one ends, and who is told what. (Sessions: tests/handler/sessions.)

tests/hosts/sessions has it behind the hosts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..kit.api.handler import Access, Exchange, RollingBatch, answer_of
from ..kit.api.types import Delta, Finish, Request, Started, Token
from ..kit.hosts.local_server import Make, serving
from ..kit.paths import USER_CODE
from ..kit.rows import each_row
from ..kit.user_code.service import MakeScripted, ScriptedService
from ..kit.waiting import until

NAME = "0123456789abcdef"
OTHER = "fedcba9876543210"
HELLO = {"inputs": "Hi"}
STREAM = {"inputs": "Hi", "stream": True}
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
END = Finish("eos", generated_tokens=1)
WORD = Delta(0, "Hello", (Token(7, "Hello", -0.5),))
SAID = "the request was cancelled (CANCEL)"


def opened(place: ScriptedService, body: object = HELLO, request_id: str = NAME, dialect: str = "") -> Exchange:
    return place.open(body, attributes={"dialect": dialect} if dialect else {}, request_id=request_id)


def cancel(place: ScriptedService, request_id: object = NAME, **more: object) -> tuple[int, Any]:
    """Status and body of the answer, which is there at once."""
    body = {"requestType": "CANCEL", "request_id": request_id, **more}
    answer = answer_of(place.open(body, request_id="the one that cancels"))
    return answer.status, json.loads(answer.body)


DONE = (200, {"result": f"Request {NAME} cancelled"})


@each_row(("body", "status"), [(HELLO, 424), (STREAM, 424), (CHAT, 499), ({**CHAT, "stream": True}, 499)])
def test_one_that_has_not_begun_ends_with_an_error(scripted: MakeScripted, body: object, status: int) -> None:
    place = scripted()
    exchange = opened(place, body)
    assert cancel(place) == DONE
    assert exchange.finished
    assert not place.engine.sinks
    assert place.service.admission.open == 0
    assert exchange.call.reply.status == status
    assert SAID in exchange.take_all().decode()
    assert place.service.metrics.errors == {"request_cancelled": 1}


@each_row("body", [STREAM, {**CHAT, "stream": True}])
def test_a_stream_ends_with_a_last_record(scripted: MakeScripted, body: object) -> None:
    place = scripted()
    exchange = opened(place, body)
    place.engine.say(0, Started(1), WORD)
    exchange.take_all()
    assert cancel(place) == DONE
    assert exchange.finished
    assert SAID in exchange.take_all().decode()
    assert not place.engine.sinks


def test_all_of_one_id_and_no_other(scripted: MakeScripted) -> None:
    place = scripted()
    named = [opened(place), opened(place, STREAM)]
    other = opened(place, request_id=OTHER)
    assert cancel(place) == DONE
    assert [exchange.finished for exchange in (*named, other)] == [True, True, False]
    place.engine.say(2, Started(1), Delta(0, "there", finish=END))
    assert other.take_all() == b'{"generated_text":"there"}'


def test_one_that_is_not_running_is_not_found(scripted: MakeScripted) -> None:
    place = scripted()
    exchange = opened(place)
    place.engine.say(0, Started(1), Delta(0, "there", finish=END))
    assert exchange.finished
    message = f"request_id: no request {NAME} is running here"
    assert cancel(place) == (424, {"error": message, "code": 424})
    assert cancel(place, "x" * 5000)[0] == 424


@pytest.mark.parametrize(
    ("headers", "options"),
    [({"x-amzn-sagemaker-session-id": "any"}, {}), ({}, {"output_formatter": "toy_cancelled:Toy"})],
    ids=["in a session", "beside a user's dialect"],
)
def test_one_does_not_find_itself(
    scripted: MakeScripted, tmp_path: Path, headers: dict[str, str], options: dict[str, str]
) -> None:
    (tmp_path / "toy_cancelled.py").write_text((USER_CODE / "toy.py").read_text())
    place = scripted(**options)
    body = json.dumps({"requestType": "CANCEL", "request_id": NAME}).encode()

    def cancelled() -> bytes:
        """By one with the id that it cancels."""
        answer = answer_of(place.service.open(Request(body, headers=headers, request_id=NAME)))
        return answer.body

    message = f"request_id: no request {NAME} is running here"
    assert json.loads(cancelled()) == {"error": message, "code": 424}
    running = opened(place)
    assert json.loads(cancelled()) == DONE[1]
    until(lambda: running.finished)


@each_row("given", ["0123456789abcde", "", None, 5, ["0123456789abcdef"]])
def test_a_short_id_cancels_nothing(scripted: MakeScripted, given: Any) -> None:
    place = scripted()
    running = opened(place, request_id=given if isinstance(given, str) else NAME)
    status, answer = cancel(place, given)
    assert status == 424
    assert answer["error"].startswith("request_id: expected the id of a request, of 16 characters or more")
    assert not running.finished


def test_a_field_that_is_unknown_is_refused_where_that_is_asked_for(scripted: MakeScripted) -> None:
    place = scripted(unknown_parameters="error")
    status, answer = cancel(place, id=NAME)
    assert (status, "id: unknown field" in answer["error"]) == (424, True)


def test_it_is_taken_where_nothing_else_is(scripted: MakeScripted) -> None:
    place = scripted(max_rolling_batch_size="1", max_queued_requests="0")
    opened(place)
    refused = answer_of(place.service.open(Request(b'{"inputs": "Hi", "requestType": "CANCEL"}')))
    assert refused.status == 429
    for kind in ("NEW_SESSION", "CLOSE"):
        refused = answer_of(place.service.open(Request(json.dumps({"requestType": kind}).encode())))
        assert refused.status == 429
    assert cancel(place) == DONE
    assert place.service.admission.open == 0


HANGING = """
import time

def slow(response):
    time.sleep(2)
    return response
"""


def test_user_code_that_hangs_is_left(scripted: MakeScripted, tmp_path: Path) -> None:
    """Neither waits for it: the request that is cancelled, the one that cancels."""
    (tmp_path / "mine.py").write_text(HANGING)
    place = scripted(output_formatter="mine:slow", user_code_threads="1")
    exchange = opened(place)
    until(lambda: place.engine.sinks)
    place.engine.say(0, Started(1), Delta(0, "there", finish=END))
    time.sleep(0.1)
    assert cancel(place) == DONE
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
def test_it_is_not_for_a_dialect_of_the_users(scripted: MakeScripted, tmp_path: Path, dialect: str) -> None:
    """Which has every thread, and whose requests take every place."""
    (tmp_path / "mine.py").write_text(GREEDY)
    limits = {"user_code_threads": "1", "max_rolling_batch_size": "1", "max_queued_requests": "0"}
    place = scripted(output_formatter="mine:Greedy", dialect=dialect, **limits)
    exchange = opened(place)
    assert cancel(place) == DONE
    until(lambda: exchange.finished)
    assert SAID in exchange.take_all().decode()
    assert cancel(place)[0] == 424


def test_in_rolling_batch_a_call_has_both(scripted: MakeScripted) -> None:
    """The request that cancels stands behind the one that it cancels, in one call of Java's."""
    place = scripted()
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
