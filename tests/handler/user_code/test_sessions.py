"""User code has its request's session: dialects by the Request, djl_python's formatters by a parameter `session`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ...kit.api.types import Delta, EngineEvent, Finish, Started
from ...kit.djl import hosting
from ...kit.user_code.service import MakeScripted, ScriptedService
from ...kit.waiting import until

END = Finish("eos", generated_tokens=1)
HEADER = "x-amzn-sagemaker-session-id"
NEW = "X-Amzn-SageMaker-New-Session-Id"

FORMATTERS = """
def count(decoded_payload, session=None):
    if session is not None:
        session.put("count", session.get("count", 0) + 1)
    return decoded_payload

async def count_awaited(decoded_payload, session, **kwargs):
    assert not kwargs.keys() - {"tokenizer"}
    return count(decoded_payload, session=session)

def tell(response, session=None):
    return {"count": None if session is None else session.get("count")}

def tell_by_name(response, *, session):
    return tell(response, session)

def without(decoded_payload, **kwargs):
    assert "session" not in kwargs
    return decoded_payload

def fails(decoded_payload, session=None):
    session.put("key", object())
"""

DIALECT = """
from lmi.handler.api import JSON, Delta, Generation, ParsedRequest, Response, SessionError, encode

class Encoder:
    status, content_type, headers, failure, finished = 200, JSON, {}, None, False

    def __init__(self, session):
        self.session = session

    def feed(self, event, prompt=0):
        if not isinstance(event, Delta):
            return []
        self.finished = True
        return [encode({"told": self.session.get("told")})]

class Diary:
    NAME, BODY_FIELD, ROUTES = "diary", "tell", ()

    def matches(self, payload, request, settings):
        return "tell" in payload or payload.get("requestType") == "DIARY"

    def parse(self, payload, request, settings):
        session = request.session
        if session is None:
            raise SessionError("a diary needs a session")
        session.put("told", [*session.get("told", []), payload["tell"]])
        return ParsedRequest((Generation(request_id=request.request_id, prompt="x"),), Encoder(session))

    def refuse(self, error, payload, request, settings):
        return Response(encode({"problem": error.message}), error.status, failure=error)
"""

TOKENS = """
from djl_python import Input
from djl_python.request_io import RequestInput, TextGenerationOutput, TextInput

def read(input_item: Input, session=None, **kwargs) -> RequestInput:
    session.put("seen", input_item.get_property("X-Amzn-SageMaker-Session-Id"))
    made = TextInput()
    made.input_text = "Hi"
    made.parameters = {"stream": False}
    return made

def write(request_output: TextGenerationOutput, session=None) -> str:
    return session.get("seen")
"""


class Place:
    """A service with user code, on an engine that answers at once."""

    def __init__(self, made: ScriptedService) -> None:
        self.made = made

    def ask(self, body: object, session: str = "") -> tuple[int, Any, dict[str, str]]:
        """Status, body and headers."""
        headers = {HEADER: session} if session else {}
        attributes = {"X-Amzn-SageMaker-Session-Id": session} if session else {}
        ended = self.made.ended(body, headers, attributes=attributes)
        return ended.call.reply.status, told(ended.take_all().decode()), dict(ended.call.reply.headers)

    def new(self) -> str:
        status, _, headers = self.ask({"requestType": "NEW_SESSION"})
        assert status == 200
        return headers["X-Amzn-SageMaker-Session-Id"].partition(";")[0]


def told(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


Make = Callable[..., Place]


@pytest.fixture
def make(scripted: MakeScripted) -> Make:
    def one(source: str, file: str = "mine_in_a_session.py", **options: str) -> Place:
        given = {option: text.replace("mine:", "mine_in_a_session:") for option, text in options.items()}
        then: list[EngineEvent] = [Started(1, text="Hi"), Delta(0, "there", (), END)]
        return Place(scripted({file: source}, then=then, sessions_path="sessions", **given))

    return one


@pytest.mark.parametrize(("read", "write"), [("count", "tell"), ("count_awaited", "tell_by_name")])
def test_formatters_that_take_a_session(make: Make, read: str, write: str) -> None:
    place = make(FORMATTERS, input_formatter=f"mine:{read}", output_formatter=f"mine:{write}")
    # Requests about sessions are not theirs.
    one, two = place.new(), place.new()
    assert [place.ask({"inputs": "Hi"}, session)[1] for session in (one, one, two, "")] == [
        {"count": 1},
        {"count": 2},
        {"count": 1},
        {"count": None},
    ]
    status, body, headers = place.ask({"inputs": "Hi"}, "NEW_SESSION")
    assert (status, body) == (200, {"count": 1})
    assert headers["X-Amzn-SageMaker-Session-Id"] == headers["X-Amzn-SageMaker-New-Session-Id"]
    assert place.ask({"inputs": "Hi"}, "abc")[0] == 424
    assert place.ask({"requestType": "CLOSE"}, one)[1] == {"result": f"Session {one} closed"}


def test_one_that_takes_none_is_called_as_ever(make: Make) -> None:
    place = make(FORMATTERS, input_formatter="mine:without")
    assert place.ask({"inputs": "Hi"}, place.new())[0] == 200


def test_what_it_does_wrong_is_told(make: Make) -> None:
    place = make(FORMATTERS, input_formatter="mine:fails")
    status, body, _ = place.ask({"inputs": "Hi"}, place.new())
    assert status == 424
    assert body["error"].startswith("session: key: expected bytes, a NumPy array")


def test_a_dialect_has_the_requests_session(make: Make) -> None:
    place = make(DIALECT, output_formatter="mine:Diary")
    session = place.new()
    assert place.ask({"tell": 1}, session)[1] == {"told": [1]}
    assert place.ask({"tell": 2}, session)[1] == {"told": [1, 2]}
    assert place.ask({"tell": 1})[:2] == (424, {"problem": "a diary needs a session"})
    assert place.ask({"requestType": "CLOSE"}, session)[1] == {"result": f"Session {session} closed"}
    assert place.ask({"requestType": "CLOSE"}, session)[0] == 424
    # A body that is the dialect's own goes to it, whatever it says.
    assert place.ask({"requestType": "DIARY"})[1] == {"problem": "a diary needs a session"}
    assert place.ask({"inputs": "Hi"}, place.new())[1] == {"generated_text": "there"}


@pytest.mark.skipif(hosting.available() is not None, reason=str(hosting.available()))
def test_formatters_of_rolling_batch(make: Make) -> None:
    with hosting.djl_python():
        place = make(TOKENS, input_formatter="mine:read", output_formatter="mine:write")
        session = place.new()
        assert place.ask({}, session)[:2] == (200, session)


HANDLE = """
from djl_python import Input, Output

def handle(inputs: Input, session=None):
    if inputs.is_empty():
        assert session is None
        return None
    asked = inputs.get_as_json()
    if session is not None:
        session.put("count", session.get("count", 0) + 1)
    if "told" in asked:
        return Output().add_as_json({"count": session and session.get("count")})
    if "refused" in asked:
        return Output().error("no", code=403)
    return None
"""


@pytest.fixture
def handled(make: Make) -> Iterator[Place]:
    if (missing := hosting.available()) is not None:
        pytest.skip(missing)
    with hosting.djl_python():
        yield make(HANDLE, "model.py", entryPoint="lmi.handler")


def test_a_handle_has_the_requests_session(handled: Place) -> None:
    session = handled.new()
    assert handled.ask({"inputs": "Hi"}, session)[1] == {"generated_text": "there"}
    assert handled.ask({"told": 1}, session)[1] == {"count": 2}
    assert handled.ask({"told": 1})[1] == {"count": None}
    assert handled.ask({"requestType": "CLOSE"}, session)[0] == 200
    status, body, _ = handled.ask({"told": 1}, session)
    assert (status, body["error"]) == (424, f"Input parsing failed: session not found: {session}")


def test_a_new_session_of_a_handle_is_told_unless_it_refuses(handled: Place, tmp_path: Path) -> None:
    for body in ({"told": 1}, {"inputs": "Hi"}):
        assert "; Expires=" in handled.ask(body, "NEW_SESSION")[2][NEW]
    before = len(list((tmp_path / "sessions").iterdir()))
    status, _, headers = handled.ask({"refused": 1}, "NEW_SESSION")
    assert (status, NEW in headers) == (403, False)
    until(lambda: len(list((tmp_path / "sessions").iterdir())) == before)


SAGEMAKER = """
import json

def input_fn(body, content_type, session=None):
    payload = json.loads(body)
    session.put("seen", payload["inputs"])
    return payload

def output_fn(prediction, accept, session=None):
    return {"seen": session.get("seen")}
"""


def test_sagemakers_functions_that_take_a_session(make: Make) -> None:
    place = make(SAGEMAKER, "model.py", entryPoint="lmi.handler")
    assert place.ask({"inputs": "Hi"}, place.new())[1] == {"seen": "Hi"}
