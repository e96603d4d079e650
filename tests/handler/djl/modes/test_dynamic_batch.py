"""A dynamic batch answers before Java's patience ends, which would end the worker (PyProcess.predictStandard)."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lmi.handler.djl.modes.dynamic_batch import Chunks, PlainBatch, Whole

from ....kit.api.handler import Exchange
from ....kit.api.types import Delta, Finish, Generation, Request, Sink, Started, Token
from ....kit.user_code.service import ScriptedService

END = Finish("eos", generated_tokens=1)
LIMIT = 0.001
"""Seconds: what has not come when the call is made comes too late."""
LATE = "the request took longer than 0.001 seconds"


@pytest.fixture
def made(tmp_path: Path) -> ScriptedService:
    return ScriptedService(tmp_path, {}, {"rolling_batch": "disable", "enable_streaming": "true"})


def request(stream: bool = False) -> Request:
    return Request(json.dumps({"inputs": "Hi", "stream": stream}).encode(), attributes={"dialect": "lmi"})


def test_a_batch_that_takes_too_long_is_answered(made: ScriptedService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that have ended have their answers."""
    submit = made.engine.submit

    def second_only(generation: Generation, sink: Sink) -> int:
        ticket = submit(generation, sink)
        if ticket == 1:
            made.engine.say(1, Started(1), Delta(0, "there", finish=END))
        return ticket

    monkeypatch.setattr(made.engine, "submit", second_only)
    late, good = PlainBatch(made.service, LIMIT).answers([request(), request()])
    assert json.loads(good.body) == {"generated_text": "there"}
    assert LATE in late.body.decode()
    assert not made.engine.sinks
    assert made.service.admission.open == 0


def test_a_whole_answer_has_a_length_however_slowly_its_end_comes_behind_its_only_record(
    made: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, release, ending = made.engine.submit, made.service.admission.release, threading.Event()

    def slow(exchange: Exchange) -> None:
        ending.set()
        time.sleep(0.1)
        release(exchange)

    def speaking(generation: Generation, sink: Sink) -> int:
        """Returns when the record is there, and the end is not."""
        ticket = submit(generation, sink)
        events = (Started(1), Delta(0, "there", finish=END))
        threading.Thread(target=made.engine.say, args=(ticket, *events), daemon=True).start()
        assert ending.wait(30)
        return ticket

    monkeypatch.setattr(made.service.admission, "release", slow)
    monkeypatch.setattr(made.engine, "submit", speaking)
    answer = PlainBatch(made.service).answer(request())
    assert isinstance(answer, Whole)
    assert json.loads(answer.body) == {"generated_text": "there"}


def test_all_of_a_batch_have_the_status_of_the_error(made: ScriptedService) -> None:
    late = PlainBatch(made.service, LIMIT).answers([request(), request()])
    assert {answer.status for answer in late} == {424}


@pytest.mark.parametrize("stream", [False, True])
def test_one_that_does_not_begin_is_answered(made: ScriptedService, stream: bool) -> None:
    answer = PlainBatch(made.service, LIMIT).answer(request(stream))
    assert isinstance(answer, Whole)
    assert answer.status == 424
    assert LATE in answer.body.decode()


def lines(chunks: Chunks) -> list[dict[str, Any]]:
    return [json.loads(line) for line in b"".join(chunks.records).splitlines()]


def test_a_stream_goes_on_while_nobody_waits(made: ScriptedService) -> None:
    """Java has its head, which is all that it waits for."""
    made.engine.submit_then = [Started(1), Delta(0, "a", (Token(1, "a"),))]
    answer = PlainBatch(made.service, LIMIT).answer(request(stream=True))
    assert isinstance(answer, Chunks)
    records = iter(answer.records)
    first = next(records)
    made.engine.say(0, Delta(0, "b", (Token(2, "b"),), END))
    told = [json.loads(line) for line in (first + b"".join(records)).splitlines()]
    assert [one["token"]["text"] for one in told] == ["a", "b"]
    assert told[-1]["generated_text"] == "ab"


def test_a_stream_leaves_half_of_the_time_to_a_call_that_waits(made: ScriptedService) -> None:
    made.engine.submit_then = [Started(1), Delta(0, "a", (Token(1, "a"),))]
    batch = PlainBatch(made.service, 0.4)
    answer = batch.answer(request(stream=True))
    assert isinstance(answer, Chunks)
    java, worker = socket.socketpair()
    with java, worker:
        batch.next_call.watch(worker)
        java.send(b"the next call")
        told = lines(answer)
    assert "the stream has ended since another request has waited for 0.2 seconds" in json.dumps(told[-1])


def test_the_time_of_a_call_that_waits_has_run_since_it_came(made: ScriptedService) -> None:
    """The stream's share of it, and its own."""
    made.engine.submit_then = [Started(1), Delta(0, "a", (Token(1, "a"),))]
    batch = PlainBatch(made.service, 100.0)
    answer = batch.answer(request(stream=True))
    assert isinstance(answer, Chunks)
    begun = time.monotonic()
    batch.next_call.since = begun - 51
    assert "has waited for 50 seconds" in json.dumps(lines(answer)[-1])
    made.engine.submit_then = []
    batch.next_call.since = begun - 101
    assert batch.answer(request()).status == 424
    assert time.monotonic() - begun < 40, "it has waited as long again"
    assert batch.next_call.since is None


def of_session(body: object, session: str = "") -> Request:
    attributes = {"x-amzn-sagemaker-session-id": session} if session else {}
    return Request(json.dumps(body).encode(), attributes=attributes)


def test_a_batch_of_several_makes_no_session_that_nobody_is_told_of(tmp_path: Path) -> None:
    options = {"rolling_batch": "disable", "sessions_path": "sessions"}
    made = ScriptedService(tmp_path, {}, options)
    made.engine.submit_then = [Started(1), Delta(0, "there", finish=END)]
    batch, hello = PlainBatch(made.service), {"inputs": "Hi"}

    def count() -> int:
        return sum(path.is_dir() for path in (tmp_path / "sessions").iterdir())

    refused, served = batch.answers([of_session(hello, "NEW_SESSION"), of_session(hello)])
    assert (refused.status, served.status, count()) == (424, 200, 0)
    assert b"requestType" in refused.body
    assert b"in a dynamic batch of several requests" in refused.body
    (alone,) = batch.answers([of_session(hello, "NEW_SESSION")])
    assert (alone.status, count()) == (200, 1)
    assert any(name.lower() == "x-amzn-sagemaker-session-id" for name in alone.headers)
    new, other = batch.answers([of_session({"requestType": "NEW_SESSION"}, "NEW_SESSION"), of_session(hello)])
    assert (new.status, other.status, count()) == (200, 200, 2)
    session = json.loads(new.body)["result"].split()[1]
    closed, again = batch.answers([of_session({"requestType": "CLOSE"}, session), of_session(hello)])
    assert (closed.status, again.status, count()) == (200, 200, 1)
    assert json.loads(closed.body) == {"result": f"Session {session} closed"}
    gone, _ = batch.answers([of_session({"requestType": "CLOSE"}, session), of_session(hello)])
    assert gone.status == 424
    made.service.close()
