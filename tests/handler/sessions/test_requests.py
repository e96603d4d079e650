"""What a request gets that names a session, makes or closes one: each row of the contract, without a host.

tests/hosts/sessions has the same behind the hosts.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lmi.handler.sessions import requests as sessions
from lmi.handler.sessions.requests import Sessions

from ...kit.api.errors import OptionError, SessionError
from ...kit.api.handler import Service, headers_of, started_service
from ...kit.api.types import Delta, Finish, Request, Started
from ...kit.rows import each_row
from ...kit.user_code.engine import ScriptedEngine
from ...kit.waiting import until

HEADER = "x-amzn-sagemaker-session-id"
NEW = {"requestType": "NEW_SESSION"}
CLOSE = {"requestType": "CLOSE"}
HELLO = {"inputs": "Hi"}
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
END = Finish("eos", generated_tokens=1)


class Answered:
    """A whole answer of a service's, as a host would send it."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Place:
    """A service whose engine says "there" to each request at once."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder / "sessions"
        self.engine = ScriptedEngine()
        self.engine.submit_then = [Started(1), Delta(0, "there", finish=END)]
        self.now = time.time()
        self.service = Service(settings_of(folder, {"sessions_path": str(self.folder), **options}), self.engine)
        self.service.sessions._store._clock = lambda: self.now
        self.service.start()

    def ask(self, body: object, session: str | None = None, **headers: str) -> Answered:
        given = headers if session is None else {**headers, HEADER: session}
        opened = self.service.open(Request(json.dumps(body).encode(), headers=given, request_id=str(uuid.uuid4())))
        until(lambda: opened.finished)
        return Answered(opened.call.reply.status, headers_of(opened.call.reply), opened.take_all())

    def new(self) -> str:
        """A session's id."""
        answer = self.ask(NEW)
        assert answer.status == 200, answer.body
        return answer.headers[HEADER].partition(";")[0]

    @property
    def ids(self) -> set[str]:
        return {path.name for path in self.folder.iterdir() if path.is_dir()} if self.folder.exists() else set()


def settings_of(folder: Path, options: Mapping[str, str]) -> Any:
    from ...kit.api.options import make_settings

    return make_settings(None, **options) if "model_dir" in options else make_settings(folder, **options)


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


def test_a_session_is_made(make: Make) -> None:
    place = make()
    answer = place.ask(NEW)
    (session,) = place.ids
    assert answer.status == 200
    assert answer.body == f'{{"result": "Session {session} created"}}\n'.encode()
    assert answer.headers["content-type"] == "application/json"
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(place.now + 1200))
    value = f"{session}; Expires={expires}"
    assert answer.headers[HEADER] == answer.headers["x-amzn-sagemaker-new-session-id"] == value
    # What botocore's model of the service says of it (sagemaker-runtime, NewSessionResponseHeader).
    pattern = r"[a-zA-Z0-9](-*[a-zA-Z0-9])*;\sExpires=[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
    assert re.fullmatch(pattern, value)
    assert not place.engine.generations


def test_a_session_is_closed_once(make: Make) -> None:
    place = make()
    session = place.new()
    answer = place.ask(CLOSE, session)
    assert (answer.status, answer.json) == (200, {"result": f"Session {session} closed"})
    assert answer.headers["x-amzn-sagemaker-closed-session-id"] == session
    assert HEADER not in answer.headers
    assert place.ids == set()
    again = place.ask(CLOSE, session)
    assert (again.status, again.json) == (424, failed(f"Failed to close session: session not found: {session}"))
    assert "x-amzn-sagemaker-closed-session-id" not in again.headers


@pytest.mark.parametrize("body", [NEW, CLOSE])
def test_fields_that_are_unknown(make: Make, body: dict[str, Any]) -> None:
    """They are ignored, or refused by name (docs/decisions.md: Unknown parameters)."""
    for options, status in (({}, 200), ({"unknown_parameters": "error"}, 424)):
        place = make(**options)
        answer = place.ask({**body, "extra": 1}, place.new() if body is CLOSE else None)
        assert (answer.status, b"extra: unknown field" in answer.body) == (status, status != 200)


def failed(message: str) -> dict[str, Any]:
    return {"error": message, "code": 424}


@each_row("dynamic", [False, True])
@each_row(
    ("body", "session", "message"),
    [
        (CLOSE, None, "Failed to close session: invalid session_id: None"),
        (CLOSE, "", "Failed to close session: invalid session_id: None"),
        (CLOSE, "abc", "Failed to close session: session not found: abc"),
        (CLOSE, "../x", "Failed to close session: session not found: ../x"),
        (CLOSE, "NEW_SESSION", "Failed to close session: session not found: NEW_SESSION"),
        (HELLO, "abc", "Input parsing failed: session not found: abc"),
        (HELLO, "../x", "Input parsing failed: session not found: ../x"),
        (HELLO, str(uuid.UUID(int=5, version=4)), "Input parsing failed: session not found: 0"),
        ({**HELLO, "stream": True}, "abc", "Input parsing failed: session not found: abc"),
        ({"requestType": "OPEN"}, None, "Input parsing failed: invalid payload. request type must be one of NEW_"),
        ({"requestType": None}, None, "Input parsing failed: invalid payload. request type must be one of NEW_"),
        ({"requestType": ["CLOSE"]}, None, "Input parsing failed: invalid payload. request type must be one of NEW_"),
    ],
)
def test_errors(make: Make, dynamic: bool, body: object, session: str | None, message: str) -> None:
    place = make(**({"rolling_batch": "disable"} if dynamic else {}))
    answer = place.ask(body, session)
    assert answer.status == 424
    assert answer.json["code"] == 424
    assert answer.json["error"].startswith(message)
    assert answer.json.keys() - {"message"} == {"error", "code"}
    assert not place.engine.generations


def test_what_asks_for_a_generation_is_served_as_that(make: Make) -> None:
    """`prompt`, `inputs` and `messages` are looked for first."""
    place = make()
    for body in ({**HELLO, **NEW}, {"prompt": "Hi", **CLOSE}, {**CHAT, "requestType": "OPEN"}):
        assert "there" in place.ask(body).body.decode()
    assert place.ids == set()


@pytest.mark.parametrize("body", [HELLO, CHAT, {"prompt": "Hi"}, {**CHAT, "stream": True}, {**HELLO, "stream": True}])
def test_a_request_of_a_session_is_served(make: Make, body: dict[str, Any]) -> None:
    place = make()
    session = place.new()
    answer = place.ask(body, session)
    assert answer.status == 200
    assert "there" in answer.body.decode()
    assert HEADER not in answer.headers
    assert place.ids == {session}
    large = place.ask({**body, "user": "x" * 300_000}, session)
    assert large.status == 200


@pytest.mark.parametrize("body", [HELLO, CHAT, {**CHAT, "stream": True}, {**HELLO, "stream": True}])
def test_a_request_may_make_its_session(make: Make, body: dict[str, Any]) -> None:
    place = make()
    answer = place.ask(body, "NEW_SESSION")
    (session,) = place.ids
    assert answer.status == 200
    assert "there" in answer.body.decode()
    assert answer.headers[HEADER] == answer.headers["x-amzn-sagemaker-new-session-id"]
    assert answer.headers[HEADER].startswith(f"{session}; Expires=")
    assert place.ask(body, session).status == 200


def test_a_custom_attribute_is_the_same(make: Make) -> None:
    """Behind DJL Serving they cannot be told apart."""
    place = make()
    attributes = {"X-Amzn-SageMaker-Session-Id": "abc", HEADER: "abc"}
    opened = place.service.open(Request(json.dumps(HELLO).encode(), attributes=attributes))
    until(lambda: opened.finished)
    assert b"session not found: abc" in opened.take_all()


def test_a_request_that_is_refused_makes_none(make: Make) -> None:
    place = make()
    answer = place.ask({"inputs": ""}, "NEW_SESSION")
    assert answer.status == 424
    assert HEADER not in answer.headers
    until(lambda: not place.ids)


def test_a_new_session_is_made_once_for_a_header_and_a_body(make: Make) -> None:
    place = make()
    answer = place.ask(NEW, "NEW_SESSION")
    assert len(place.ids) == 1
    assert place.ids == {answer.headers[HEADER].partition(";")[0]}


def test_no_header_and_an_empty_one_are_no_session(make: Make) -> None:
    place = make()
    for session in (None, ""):
        assert place.ask(HELLO, session).status == 200
    assert not place.folder.exists() or place.ids == set()


def test_an_expired_session_is_refused_by_name(make: Make) -> None:
    place = make(sessions_expiration="60")
    session = place.new()
    place.now += 61
    answer = place.ask(HELLO, session)
    assert (answer.status, answer.json) == (424, failed(f"Input parsing failed: session expired: {session}"))
    # As upstream: it can be closed, for what was kept in it.
    assert place.ask(CLOSE, session).status == 200


def test_an_expired_session_may_be_served_without_it(make: Make) -> None:
    place = make(sessions_expiration="60", sessions_serve_expired="true")
    session = place.new()
    place.now += 61
    assert place.ask(HELLO, session).status == 200
    place.new()
    # It has been removed, and nobody knows any more that it was there.
    assert place.ask(HELLO, session).status == 424


def test_another_dialects_error_is_in_its_form(make: Make) -> None:
    place = make()
    answer = place.ask(CHAT, "abc")
    assert answer.status == 424
    assert answer.json["error"]["message"] == "Input parsing failed: session not found: abc"
    assert answer.json["error"]["code"] == "session_error"


@each_row(
    ("body", "session", "what"),
    [
        (NEW, None, "NEW_SESSION"),
        (CLOSE, "abc", "CLOSE"),
        (HELLO, "abc", "X-Amzn-SageMaker-Session-Id header"),
        (HELLO, "NEW_SESSION", "X-Amzn-SageMaker-Session-Id header"),
    ],
)
def test_without_sessions_who_asks_for_one_is_told(make: Make, body: object, session: str | None, what: str) -> None:
    place = make(enable_stateful_sessions="false")
    answer = place.ask(body, session)
    assert answer.status == 424
    said = f"invalid payload. stateful sessions not enabled, {what} not supported (option.enable_stateful_sessions)"
    assert answer.json["error"].removeprefix("Input parsing failed: ") == said
    assert place.ask(HELLO).status == place.ask(HELLO, "").status == 200
    assert not place.folder.exists()


def test_limits_are_told(make: Make) -> None:
    place = make(sessions_max_number="1")
    place.new()
    for body, session, begin in ((NEW, None, "Failed to create session: "), (HELLO, "NEW_SESSION", "Input parsing f")):
        answer = place.ask(body, session)
        assert answer.status == 424
        assert answer.json["error"].startswith(begin)
        assert "there are 1 sessions, expected fewer than 1 (option.sessions_max_number)" in answer.json["error"]


def test_close_while_a_request_of_the_session_runs(make: Make) -> None:
    place = make()
    session = place.new()
    place.engine.submit_then = []
    body = json.dumps(HELLO).encode()
    running = place.service.open(Request(body, headers={HEADER: session}))
    until(lambda: place.engine.sinks)
    assert place.ask(CLOSE, session).status == 200
    place.engine.say(0, Started(1), Delta(0, "there", finish=END))
    assert running.take_all() == b'{"generated_text":"there"}'


def test_a_restart_takes_sessions_over(make: Make) -> None:
    session = make().new()
    place = make()
    assert place.ask(HELLO, session).status == 200
    assert place.ask(CLOSE, session).status == 200


def test_what_fails_unforeseen_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make()

    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("lmi.handler.sessions.store.Store.find", broken)
    assert "the session could not be had: ZeroDivisionError" in place.ask(HELLO, "abc").json["error"]
    assert "ZeroDivisionError" in place.ask(CLOSE, "abc").json["error"]


def test_an_embedding_model_has_sessions_too(make: Make) -> None:
    place = make(task="text-embedding")
    assert place.ask(CLOSE, place.new()).status == 200


def test_requests_without_a_session_touch_no_file(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make()
    monkeypatch.setattr(sessions, "Store", None)
    place.service.sessions._store = None  # type: ignore[assignment]
    assert place.ask(HELLO).status == 200


# --- The folder ---


def test_the_folder_is_made_when_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SHARED_MEMORY", str(tmp_path))
    service = started_service(ScriptedEngine())
    assert not list(tmp_path.iterdir())
    service.sessions.created()
    assert [path.name for path in tmp_path.iterdir()] == ["djl_sessions"]
    service.close()


def test_without_shared_memory_it_is_a_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SHARED_MEMORY", str(tmp_path / "missing"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    started_service(ScriptedEngine()).sessions.created()
    assert (tmp_path / "djl_sessions").is_dir()


@pytest.mark.parametrize("given", ["sessions", "a/b"])
def test_a_relative_path_counts_from_the_model_directory(tmp_path: Path, given: str) -> None:
    service = started_service(ScriptedEngine(), tmp_path, sessions_path=given)
    service.sessions.created()
    assert (tmp_path / given / ".ledger").exists()
    service.close()


def test_a_path_that_cannot_be_used_fails_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in ("file", "file/below"):
        with pytest.raises(OptionError, match=r"option.sessions_path: "):
            started_service(ScriptedEngine(), tmp_path, sessions_path=path)


def test_one_by_default_that_cannot_be_used_is_told_to_whoever_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "djl_sessions").write_text("x")
    monkeypatch.setattr(sessions, "SHARED_MEMORY", str(tmp_path))
    service = started_service(ScriptedEngine())
    with pytest.raises(SessionError, match=r"Failed to create session: .*expected a folder of this user's"):
        service.sessions.created()
    service.close()


def test_a_service_has_threads_for_it(tmp_path: Path) -> None:
    made = Sessions(settings_of(tmp_path, {}))
    assert made.workers.call(lambda: 5).result(10) == 5
    made.close()
