"""Bodies with `requestType`: which they are, in every dialect, and who answers them."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from lmi.formatters import control_of

from ..kit.api.dialects import DIALECTS, json_body, receive
from ..kit.api.errors import NotFoundError, PayloadError, SessionError
from ..kit.api.options import typed_settings
from ..kit.api.types import ParsedRequest, Payload, Request, Response
from ..kit.rows import each_row

SETTINGS = typed_settings()
CLOSE = {"requestType": "CLOSE"}


class Control:
    """Answers, or refuses with an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[Payload] = []

    def answer(self, payload: Payload, request: Request) -> Response:
        self.asked.append(payload)
        if self.error:
            raise self.error
        return Response(b"done")


@each_row(
    ("body", "is_one"),
    [
        (json.dumps(CLOSE), True),
        ('{"requestType": null}', True),
        ('{"requestType": "OPEN", "requestType": "CLOSE"}', True),
        ('{"request_id": "x", "requestType": "CANCEL"}', True),
        (json.dumps({**CLOSE, "inputs": None}), False),
        (json.dumps({**CLOSE, "messages": []}), False),
        (json.dumps({**CLOSE, "prompt": ""}), False),
        (json.dumps({"parameters": CLOSE}), False),
        (json.dumps({"x": "requestType"}), False),
        (json.dumps([CLOSE]), False),
        ('{"requestType": "CLOSE"', False),
        ('{"requestType": ' + "[" * 2000, False),
        ("{}", False),
        ("", False),
        # Nobody writes it so, and who does is told that there are no inputs.
        (json.dumps({**CLOSE, "x": "y" * json_body.MAX_BYTES}), False),
        ('{"request\\u0054ype": "CLOSE"}', False),
    ],
)
def test_which_they_are(body: str, is_one: bool) -> None:
    found = control_of(Request(body.encode()))
    assert (found is not None) is is_one
    assert found is None or found == json.loads(body)


NAMES = [known.name for known in DIALECTS]


@each_row("name", NAMES)
@each_row("way", ["attribute", "option"])
def test_every_dialect_has_them(name: str, way: str) -> None:
    control = Control()
    attributes = {"dialect": name} if way == "attribute" else {}
    settings = msgspec.structs.replace(SETTINGS, dialect=name if way == "option" else None)
    request = Request(json.dumps(CLOSE).encode(), attributes=attributes)
    answer = receive(request, settings, control=control)
    assert isinstance(answer, Response)
    assert (answer.body, answer.status, answer.dialect) == (b"done", 200, name)
    assert control.asked == [CLOSE]


FORMS: dict[str, Any] = {
    "anthropic": (424, None),
    "azure": (424, "message"),
    "tgi": (422, "error"),
    "dynamic": (424, "error"),
    "lmi": (424, "error"),
    "responses": (424, None),
    "openai": (424, None),
    "minimal": (424, None),
    "rerank": (424, "message"),
    "tokens": (424, None),
    "transcription": (424, None),
}


@each_row("name", NAMES)
def test_an_error_is_in_the_dialects_form(name: str) -> None:
    control = Control(SessionError("no such session"))
    answer = receive(Request(json.dumps(CLOSE).encode(), attributes={"dialect": name}), SETTINGS, control=control)
    assert isinstance(answer, Response)
    status, field = FORMS[name]
    body = json.loads(answer.body)
    assert answer.status == status
    message: str = body[field] if field else body["error"]["message"]
    assert message.removeprefix("Input validation error: ") == "no such session"


@each_row("error", [PayloadError("no"), NotFoundError("no"), SessionError("no")])
def test_in_lmis_dialect_it_is_no_generation(error: Any) -> None:
    answer = receive(Request(json.dumps(CLOSE).encode()), SETTINGS, control=Control(error))
    assert isinstance(answer, Response)
    assert (json.loads(answer.body), answer.status) == ({"error": "no", "code": 424}, 424)


def test_a_content_type_that_is_not_json_is_refused() -> None:
    request = Request(json.dumps(CLOSE).encode(), headers={"content-type": "text/plain"})
    control = Control()
    answer = receive(request, SETTINGS, control=control)
    assert isinstance(answer, Response)
    assert answer.status == 415
    assert not control.asked


def test_without_anybody_to_answer_it_is_refused_by_name() -> None:
    answer = receive(Request(json.dumps(CLOSE).encode()), SETTINGS)
    assert isinstance(answer, Response)
    assert "requestType" in json.loads(answer.body)["error"]


def test_what_generates_is_served() -> None:
    control = Control()
    request = Request(json.dumps({**CLOSE, "inputs": "Hi"}).encode())
    assert isinstance(receive(request, SETTINGS, control=control), ParsedRequest)
    assert not control.asked
