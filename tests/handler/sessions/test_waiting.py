"""A request that waits for its session ends with its time or its client, whoever has the lock, and holds up no other.

What has the lock is another description of the file: to flock it is another process, as one that is stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ...kit.api.errors import SessionError, TimeLimitError
from ...kit.api.handler import Exchange, Service, SessionStore, started_service
from ...kit.api.types import Delta, EngineEvent, Finish, Request, Started
from ...kit.rows import each_row
from ...kit.user_code.engine import ScriptedEngine
from ...kit.waiting import until

HEADER = "x-amzn-sagemaker-session-id"
NEW = {"requestType": "NEW_SESSION"}
CLOSE = {"requestType": "CLOSE"}
HELLO = {"inputs": "Hi"}
STREAM = {"inputs": "Hi", "stream": True}
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
LARGE = {**HELLO, "user": "x" * 300_000}
ANSWER: list[EngineEvent] = [Started(1), Delta(0, "there", finish=Finish("eos", generated_tokens=1))]
WAIT = 20.0
SEVERAL = 5
"""More than there are threads for sessions."""
MEMORY = """
def remember(decoded_payload, session=None):
    if "remember" in decoded_payload:
        session.put("remembered", decoded_payload.pop("remember"))
    return decoded_payload
"""
REMEMBERS = {"input_formatter": "remembering:remember"}


class Place:
    """A service with a session, and a lock that may be held elsewhere."""

    def __init__(self, folder: Path, **options: str) -> None:
        (folder / "remembering.py").write_text(MEMORY)
        self.folder = folder / "sessions"
        engine = ScriptedEngine()
        engine.submit_then = list(ANSWER)
        self.service: Service = started_service(engine, folder, sessions_path=str(self.folder), **options)
        self.session = self.new()

    def new(self) -> str:
        return self.answer(self.open(NEW)).partition(b"Session ")[2].split()[0].decode()

    def open(self, body: object, session: str = "", path: str = "") -> Exchange:
        headers = {HEADER: session} if session else {}
        return self.service.open(Request(json.dumps(body).encode(), headers=headers, path=path))

    def answer(self, exchange: Exchange) -> bytes:
        until(lambda: exchange.finished)
        assert exchange.failure is None, exchange.failure
        assert exchange.call.reply.status == 200
        return exchange.take_all()

    def sessions(self) -> set[str]:
        return {path.name for path in self.folder.iterdir() if path.is_dir()}

    @property
    def outcomes(self) -> dict[tuple[int, str], int]:
        return {(status, outcome): count for (_, status, outcome), count in self.service.metrics.requests.items()}


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """The lock of a file, had by somebody else."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


Make = Callable[..., Place]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Place] = []

    def one(**options: str) -> Place:
        made.append(Place(tmp_path, **options))
        return made[-1]

    yield one
    for place in made:
        place.service.close()


WAITING: list[tuple[dict[str, Any], str, str, dict[str, str], int]] = [
    # The body, the session ("": ours), the path, options, the status of the time limit in its dialect.
    (NEW, "none", "", {}, 424),
    (CLOSE, "", "", {}, 424),
    (HELLO, "NEW_SESSION", "", {}, 424),
    (STREAM, "NEW_SESSION", "", {}, 424),
    (CHAT, "NEW_SESSION", "/v1/chat/completions", {}, 504),
    (LARGE, "NEW_SESSION", "", {}, 424),
    (HELLO, "NEW_SESSION", "", REMEMBERS, 424),
    ({**HELLO, "remember": "x"}, "", "", REMEMBERS, 424),
    ({**CHAT, "remember": "x"}, "", "/v1/chat/completions", REMEMBERS, 504),
]


@each_row(("body", "session", "path", "options", "status"), WAITING, ids=range(len(WAITING)))
def test_the_time_of_a_request_that_waits_for_the_lock(
    make: Make, body: dict[str, Any], session: str, path: str, options: dict[str, str], status: int
) -> None:
    place = make(request_timeout="50", **options)
    named = session or place.session
    with held(place.folder / ".ledger"):
        waiting = [place.open(body, named, path) for _ in range(SEVERAL)]
        assert place.service.admission.open == SEVERAL
        place.service.admission.sweep(time.monotonic() + 51)
        until(lambda: all(exchange.finished for exchange in waiting))
        for exchange in waiting:
            assert isinstance(exchange.failure, TimeLimitError)
            assert exchange.call.reply.status == status
            (record,) = exchange.records
            assert b"the request took longer than 50 seconds (option.request_timeout)" in record
        assert (place.service.admission.open, place.service.metrics.in_flight) == (0, 0)
        assert place.outcomes == {(200, "ok"): 1, (status, "failed"): SEVERAL}
    # Those that were left say nothing more. Those that were to close the session may have got the lock since.
    left = place.new() if body is CLOSE else place.session
    place.answer(place.open(HELLO, left))
    place.answer(place.open(HELLO, "NEW_SESSION"))
    place.answer(place.open(CLOSE, left))
    assert [len(exchange.records) for exchange in waiting] == [1] * SEVERAL
    assert place.outcomes[status, "failed"] == SEVERAL


@each_row(("body", "session"), [(NEW, "none"), (HELLO, "NEW_SESSION"), (LARGE, "NEW_SESSION")])
def test_a_client_that_leaves_while_its_request_waits_for_the_lock(
    make: Make, body: dict[str, Any], session: str
) -> None:
    place = make()
    with held(place.folder / ".ledger"):
        waiting = [place.open(body, session) for _ in range(SEVERAL)]
        for exchange in waiting:
            exchange.abort()
        assert (place.service.admission.open, place.service.metrics.in_flight) == (0, 0)
        assert sum(count for (_, outcome), count in place.outcomes.items() if outcome == "aborted") == SEVERAL
    place.answer(place.open(NEW))
    assert [len(exchange.records) for exchange in waiting] == [0] * SEVERAL


@pytest.mark.parametrize("options", [{}, REMEMBERS])
def test_whoever_needs_no_lock_is_served(make: Make, options: dict[str, str]) -> None:
    """Requests of sessions that are there, and large ones, while others wait to make and close sessions."""
    place = make(user_code_threads="1", **options)
    other = place.new()
    with held(place.folder / ".ledger"):
        waiting = [
            place.open(body, session)
            for body, session in ((NEW, ""), (CLOSE, place.session), (HELLO, "NEW_SESSION"), (LARGE, "NEW_SESSION"))
            for _ in range(SEVERAL)
        ]
        for body in (HELLO, STREAM, LARGE):
            assert b"there" in place.answer(place.open(body, other))
            assert b"there" in place.answer(place.open(body))
        assert not any(exchange.finished for exchange in waiting)
    until(lambda: all(exchange.finished for exchange in waiting))
    assert place.service.admission.open == 0
    # One of them has closed ours, and each of the others has made one.
    assert len(place.sessions()) == 1 + 3 * SEVERAL


@pytest.mark.parametrize(
    "body", [(NEW, "none"), (CLOSE, ""), (HELLO, "NEW_SESSION"), ({**HELLO, "remember": "x"}, "")], ids=str
)
def test_nobody_waits_for_the_lock_for_ever(
    make: Make, monkeypatch: pytest.MonkeyPatch, body: tuple[dict[str, Any], str]
) -> None:
    place = make(**REMEMBERS)
    monkeypatch.setattr("lmi.handler.file_lock.TIMEOUT_S", 0.1)
    with held(place.folder / ".ledger"):
        waiting = [place.open(body[0], body[1] or place.session) for _ in range(SEVERAL)]
        until(lambda: all(exchange.finished for exchange in waiting))
    for exchange in waiting:
        assert isinstance(exchange.failure, SessionError)
        assert exchange.call.reply.status == 424
        said = "its lock could not be had within 0.1 seconds (option.sessions_path)"
        assert said in exchange.failure.message
        assert said.encode() in exchange.records[0]
    assert place.sessions() == {place.session}


@pytest.mark.parametrize(("body", "options"), [(HELLO, {}), (LARGE, {}), (HELLO, REMEMBERS)])
def test_a_file_that_cannot_be_read_holds_up_its_own_request(
    make: Make, body: dict[str, Any], options: dict[str, str]
) -> None:
    """To open a pipe that nobody writes to takes as long as a file server that is gone."""
    place = make(request_timeout="50", user_code_threads="1", **options)
    path = place.folder / place.session / ".session"
    said = path.read_text()
    path.unlink()
    os.mkfifo(path)
    try:
        waiting = place.open(body, place.session)
        # Until it waits there.
        time.sleep(0.05)
        place.service.admission.sweep(time.monotonic() + 51)
        assert waiting.finished
        assert isinstance(waiting.failure, TimeLimitError)
        assert (place.service.admission.open, place.service.metrics.in_flight) == (0, 0)
        # In one of its own, or in none.
        for session in (place.new(), "NEW_SESSION", ""):
            assert b"there" in place.answer(place.open(body, session))
    finally:
        path.write_text(said)
    assert len(waiting.records) == 1


def test_what_has_waited_too_long_for_a_thread_makes_nothing(tmp_path: Path) -> None:
    """Nobody waits for it any more."""
    store = SessionStore(tmp_path / "sessions", lifetime=1200, max_number=10, max_bytes=100)
    with pytest.raises(SessionError, match="its lock could not be had"):
        store.create(time.monotonic() - 0.001)
    assert [path.name for path in store.folder.iterdir() if path.is_dir()] == []
