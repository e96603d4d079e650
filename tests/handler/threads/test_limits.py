"""User code that hangs: its request is answered, its thread is abandoned, and others are served.

Time passes when a test says so: `Place.pass_time` is what the watch does.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi.handler.threads import pool as workers_module
from lmi.handler.threads.pool import Workers
from lmi.handler.threads.user_loop import CALLBACK_TIMEOUT_S

from ...kit.api.errors import LmiError, RequestCancelledError, TimeLimitError, UserCodeError
from ...kit.api.handler import Exchange
from ...kit.api.types import Delta, Finish, Started, Token
from ...kit.paths import USER_CODE
from ...kit.user_code.service import HI, MakeScripted, ScriptedService
from ...kit.waiting import until

TIMEOUT = 30.0
"""Seconds that a test waits for another thread before it fails."""

HANGS = """
import asyncio, threading, time
hanging = threading.Semaphore(0)
go = threading.Event()
threads = set()

def judge(text, stage):
    threads.add(threading.get_ident())
    if "hang" in text:
        hanging.release()
        assert go.wait(60)

async def judge_later(text, stage):
    if "hang" in text:
        hanging.release()
        await asyncio.sleep(600)
    if "block" in text:
        hanging.release()
        assert go.wait(60)

def f(payload):
    judge(payload["inputs"], "input")
    return payload

def g(response):
    judge(response if isinstance(response, str) else response["generated_text"], "output")
    return response
"""
END = Finish("eos", generated_tokens=1)
HANG = b'{"inputs": "hang"}'


Make = MakeScripted
SERVED = b'{"generated_text":"Hello"}'


def serve(made: ScriptedService, ticket: int) -> None:
    """Another request is served, as number `ticket` of the engine's."""
    other = made.open()
    made.say(ticket, Started(1), Delta(0, "Hello", finish=END))
    until(lambda: other.finished)
    assert other.records[0] == SERVED


def threads(name: str) -> int:
    return [thread.name for thread in threading.enumerate()].count(name)


@pytest.fixture
def place(scripted: MakeScripted) -> Iterator[Make]:
    """Makes a service, whose hanging code is let go afterwards."""
    made: list[ScriptedService] = []

    def make(**options: str) -> ScriptedService:
        made.append(scripted({"hangs.py": HANGS}, **{"user_code_timeout": "50", **options}))
        return made[-1]

    yield make
    if "hangs" in sys.modules:
        sys.modules["hangs"].go.set()
    for one in made:
        until(lambda one=one: one.workers.stuck == 0)  # type: ignore[misc]


def hangs(count: int = 1) -> None:
    """Waits until so many calls hang."""
    for _ in range(count):
        assert sys.modules["hangs"].hanging.acquire(timeout=TIMEOUT)


def failed(exchange: Exchange, kind: type[LmiError]) -> str:
    assert exchange.finished
    assert isinstance(exchange.failure, kind)
    return exchange.failure.message


def test_at_the_limit(place: Make) -> None:
    made = place(content_filter="hangs:judge", user_code_threads="1")
    exchange = made.open(HANG)
    hangs()
    queued = made.open()
    made.pass_time(49)
    assert not exchange.finished
    made.pass_time(50)
    message = failed(exchange, UserCodeError)
    assert message == "content filter hangs:judge has not returned within 50 seconds (option.user_code_timeout)"
    assert exchange.call.reply.status == 424
    assert message in json.loads(exchange.records[0])["error"]
    # Its only thread has been replaced.
    made.say(0, Started(1), Delta(0, "Hello", finish=END))
    until(lambda: queued.finished)
    assert queued.records[0] == b'{"generated_text":"Hello"}'
    assert made.workers.stuck == 1


STREAM = b'{"inputs": "Hi", "stream": true}'
CHAT = b'{"messages": [{"role": "user", "content": "Hi"}], "stream": true}'


@pytest.mark.parametrize(("body", "status"), [(HI, 424), (CHAT, 500)])
def test_before_the_first_record(place: Make, body: bytes, status: int) -> None:
    made = place(content_filter="hangs:judge")
    exchange = made.open(body)
    made.say(0, Started(1), Delta(0, "hang"))
    hangs()
    made.pass_time(51)
    failed(exchange, UserCodeError)
    assert exchange.call.reply.status == status
    assert len(exchange.records) == 1
    assert made.engine.aborted == [0]


def test_in_mid_stream(place: Make) -> None:
    made = place(content_filter="hangs:judge")
    exchange = made.open(CHAT)
    made.say(0, Started(1), Delta(0, "Hel"))
    until(lambda: len(exchange.records) >= 2)
    before = len(exchange.records)
    made.say(0, Delta(0, "hang"))
    hangs()
    made.engine.say(0, Delta(0, "lo", finish=END))
    made.pass_time(51)
    message = failed(exchange, UserCodeError)
    *_, error, done = exchange.records
    assert len(exchange.records) == before + 2
    assert json.loads(error.removeprefix(b"data: "))["error"]["message"] == message
    assert done == b"data: [DONE]\n\n"


@pytest.mark.parametrize("form", ["input_formatter", "output_formatter"])
def test_formatters(place: Make, form: str) -> None:
    made = place(**{form: "hangs:f" if form == "input_formatter" else "hangs:g"})
    exchange = made.open(HANG)
    if form == "output_formatter":
        made.say(0, Started(1), Delta(0, "hang", finish=END))
    hangs()
    made.pass_time(51)
    assert failed(exchange, UserCodeError).startswith(f"{form.replace('_', ' ')} hangs:")


def test_an_output_formatter_in_mid_stream(place: Make) -> None:
    made = place(output_formatter="hangs:g")
    exchange = made.open(STREAM)
    made.say(0, Started(1), Delta(0, "a", (Token(1, "a", -0.5),)))
    until(lambda: exchange.records)
    made.say(0, Delta(0, "hang", (Token(1, "hang", -0.5),)))
    hangs()
    made.pass_time(51)
    chunk, error, done = exchange.records
    assert json.loads(chunk.removeprefix(b"data: "))["choices"][0]["text"] == "a"
    assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "user_code_failed"
    assert done == b"data: [DONE]\n\n"


def test_a_dialect_of_the_users_in_mid_stream(place: Make, tmp_path: Path) -> None:
    """Its own words for an error are user code too."""
    (tmp_path / "toy.py").write_text((USER_CODE / "toy.py").read_text())
    made = place(output_formatter="toy:Toy")
    exchange = made.open(b'{"say": "Hi", "stream": true, "manner": "slow reply"}')
    (tmp_path / "toy.release").touch()
    made.say(0, Started(1), Delta(0, "a"))
    until(lambda: exchange.records)
    (tmp_path / "toy.release").unlink()
    (tmp_path / "toy.waiting").unlink()
    made.say(0, Delta(0, "b"))
    until((tmp_path / "toy.waiting").exists)
    made.pass_time(51)
    (tmp_path / "toy.release").touch()
    message = failed(exchange, UserCodeError)
    assert message.startswith("dialect toy: Reply.feed has not returned")
    assert json.loads(exchange.records[-1]) == {"error": message, "code": 424}
    assert len(exchange.records) == 2


def test_one_that_awaits_for_ever_takes_no_thread(place: Make) -> None:
    made = place(content_filter="hangs:judge_later", user_code_threads="1")
    exchange = made.open(HANG)
    hangs()
    made.pass_time(51)
    failed(exchange, UserCodeError)
    until(lambda: made.workers.stuck == 0)
    serve(made, 0)


def test_a_loop_that_is_blocked_is_replaced(place: Make) -> None:
    made = place(content_filter="hangs:judge_later", user_code_threads="2")
    exchange = made.open(b'{"inputs": "block"}')
    hangs()
    made.pass_time(51)
    failed(exchange, UserCodeError)
    until(lambda: made.workers.stuck == 0)
    serve(made, 0)


def test_what_a_call_that_was_given_up_has_yet_to_await_is_not_awaited(place: Make) -> None:
    """It hangs before it says that it is asynchronous, so that there was nothing to cancel when it was given up."""
    workers = place(content_filter="hangs:judge", user_code_threads="1").workers
    inside, go, told = threading.Event(), threading.Event(), threading.Event()

    def slow() -> Any:
        inside.set()
        assert go.wait(TIMEOUT)
        return asyncio.sleep(600)

    workers.submit(workers_module.Task(lambda: workers.run("slow", slow), lambda _: told.set()))
    assert inside.wait(TIMEOUT)
    workers.sweep(time.monotonic() + 51)
    assert told.wait(TIMEOUT)
    assert workers.stuck == 1
    go.set()
    until(lambda: workers.stuck == 0)
    assert workers.call(lambda: 5).result(TIMEOUT) == 5


def test_at_most_so_many_threads_are_replaced(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "MAX_STUCK", 1)
    made = place(content_filter="hangs:judge", user_code_threads="1")
    first = made.open(HANG)
    hangs()
    second = made.open(HANG)
    made.pass_time(51)
    failed(first, UserCodeError)
    hangs()
    queued = made.open()
    made.pass_time(51)
    failed(second, UserCodeError)
    message = "there is no thread for the request: 2 hang in user code"
    assert failed(queued, UserCodeError) == message
    refused = made.open()
    assert failed(refused, UserCodeError) == message
    assert made.service.admission.open == 0
    # They return: there is a thread again.
    sys.modules["hangs"].go.set()
    until(lambda: made.workers.stuck == 0)
    serve(made, 0)


def test_a_thread_that_hangs_while_the_engine_goes_on(place: Make) -> None:
    """There is no thread for what the engine brings: its request ends, on the engine's thread."""
    made = place(content_filter="hangs:judge", user_code_threads="1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers_module, "MAX_STUCK", 0)
        running = made.open()
        until(lambda: made.engine.generations)
        made.rest()
        hung = made.open(HANG)
        hangs()
        made.pass_time(51)
        failed(hung, UserCodeError)
        made.engine.say(0, Started(1), Delta(0, "Hello", finish=END))
        assert "there is no thread for the request" in failed(running, UserCodeError)


def test_a_thread_that_cannot_be_started(place: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the system has no process left: the request fails at once, and a later one is served."""
    made = place(content_filter="hangs:judge")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse_to_start)
        assert "there is no thread for the request" in failed(made.open(), UserCodeError)
    serve(made, 0)


def refuse_to_start(_thread: object) -> None:
    raise RuntimeError("can't start new thread")


# --- A request that is ended from outside while its function runs ---

CANCELLED = RequestCancelledError("cancelled")


def test_one_that_comes_back_in_time_does_not_hang(place: Make, caplog: pytest.LogCaptureFixture) -> None:
    made = place(content_filter="hangs:judge", user_code_threads="1")
    exchange = made.open(HANG)
    hangs()
    exchange.expire(CANCELLED)
    exchange.expire(CANCELLED)
    assert failed(exchange, RequestCancelledError) == "cancelled"
    records = list(exchange.records)
    sys.modules["hangs"].go.set()
    serve(made, 0)
    assert (made.workers.stuck, len(sys.modules["hangs"].threads)) == (0, 1)
    assert list(exchange.records) == records
    made.pass_time(51)
    assert "hang" not in caplog.text


def test_one_that_does_not_hangs(place: Make) -> None:
    made = place(content_filter="hangs:judge", user_code_threads="1")
    exchange = made.open(HANG)
    hangs()
    exchange.expire(CANCELLED)
    records = list(exchange.records)
    made.pass_time(49)
    assert made.workers.stuck == 0
    made.pass_time(51)
    assert made.workers.stuck == 1
    serve(made, 0)
    assert list(exchange.records) == records
    assert made.service.metrics.errors == {"request_cancelled": 1}


def test_one_that_awaits_is_cancelled(place: Make) -> None:
    made = place(content_filter="hangs:judge_later", user_code_threads="1")
    exchange = made.open(HANG)
    hangs()
    exchange.expire(CANCELLED)
    failed(exchange, RequestCancelledError)
    serve(made, 0)
    assert made.workers.stuck == 0


def test_who_ends_it_does_not_wait_for_a_loop_that_is_blocked(place: Make) -> None:
    made = place(content_filter="hangs:judge_later", user_code_threads="2")
    exchange = made.open(b'{"inputs": "block"}')
    hangs()
    begun = time.monotonic()
    exchange.expire(CANCELLED)
    assert time.monotonic() - begun < CALLBACK_TIMEOUT_S / 2
    failed(exchange, RequestCancelledError)
    # Its own time limit finds the loop to be blocked.
    made.pass_time(51)
    until(lambda: made.workers.stuck == 0)
    serve(made, 0)


def test_what_has_yet_to_await_when_it_is_ended_is_cancelled_then() -> None:
    workers = Workers(1, 50.0, "one")
    inside, go = threading.Event(), threading.Event()
    failures: list[Any] = []

    def slow() -> Any:
        inside.set()
        assert go.wait(TIMEOUT)
        return asyncio.sleep(600)

    task = workers_module.Task(lambda: workers.run("slow", slow), failures.append)
    workers.submit(task)
    assert inside.wait(TIMEOUT)
    assert [workers.drop(task), workers.drop(task)] == [True, True]
    go.set()
    assert workers.call(lambda: 5).result(TIMEOUT) == 5
    assert (workers.stuck, threads("one"), failures) == (0, 1, [])
    workers.close()


# --- The time of a request that such code takes part in ---


def test_time_while_it_hangs(place: Make) -> None:
    made = place(content_filter="hangs:judge", request_timeout="40")
    exchange = made.open(HANG)
    hangs()
    made.pass_time(39)
    assert not exchange.finished
    made.pass_time(41)
    assert "request_timeout" in failed(exchange, TimeLimitError)
    # The function has a time of its own.
    assert made.workers.stuck == 0
    made.pass_time(51)
    assert made.workers.stuck == 1


# --- The threads by themselves ---


def test_who_waits_for_a_future_is_told() -> None:
    workers = Workers(1, 50.0)
    began, go = threading.Event(), threading.Event()

    def slow() -> str:
        began.set()
        assert go.wait(TIMEOUT)
        return "late"

    asked = workers.call(lambda: workers.run("slow code", slow))
    assert began.wait(TIMEOUT)
    assert workers.sweep(time.monotonic() + 49) < time.monotonic() + 51
    workers.sweep(time.monotonic() + 51)
    with pytest.raises(UserCodeError, match="slow code has not returned within 50 seconds"):
        asked.result(TIMEOUT)
    assert workers.call(lambda: "another thread's").result(TIMEOUT) == "another thread's"
    go.set()
    until(lambda: workers.stuck == 0)
    workers.close()


def test_the_loop_goes_on_for_others(place: Make) -> None:
    made = place(content_filter="hangs:judge_later")
    hung = made.open(HANG)
    hangs()
    serve(made, 0)
    made.pass_time(51)
    failed(hung, UserCodeError)
    serve(made, 1)
    assert not asyncio.iscoroutinefunction(sys.modules["hangs"].judge)


def test_one_that_returns_after_all_is_one_too_many() -> None:
    """Another one has its place."""
    workers = Workers(1, 50.0, "other")
    go = threading.Event()
    began = threading.Event()

    def hang() -> None:
        began.set()
        assert go.wait(TIMEOUT)

    hung = workers.call(lambda: workers.run("slow code", hang))
    assert began.wait(TIMEOUT)
    workers.sweep(time.monotonic() + 51)
    with pytest.raises(UserCodeError):
        hung.result(TIMEOUT)
    other = workers.call(threading.get_ident).result(TIMEOUT)
    go.set()
    until(lambda: workers.stuck == 0 and threads("other") == 1)
    assert workers.call(threading.get_ident).result(TIMEOUT) == other
    workers.close()
    until(lambda: not threads("other"))


ENDS = """
import asyncio, threading, time
from lmi.handler.threads.pool import Workers
workers = Workers(2, 50.0)
began = threading.Barrier(3)
async def hang():
    began.wait()
    time.sleep(600)
plain = workers.call(lambda: workers.run("plain", lambda: (began.wait(), time.sleep(600))))
later = workers.call(lambda: workers.run("asynchronous", hang))
began.wait()
"""


def test_what_hangs_does_not_keep_the_process_from_ending() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], timeout=TIMEOUT, check=False)
    assert done.returncode == 0
