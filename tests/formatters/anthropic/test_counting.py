"""count_tokens: the prompt that a message would have, made into tokens."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lmi.formatters.anthropic import COUNT_PATH, parse, refuse
from lmi.formatters.anthropic.counting import parse_count

from ...kit.answers.anthropic import ASKED, REASONING, SETTINGS, TOOL, USER, call, whole
from ...kit.answers.events import end, feed
from ...kit.api.errors import ContextError, PayloadError, RequestError
from ...kit.api.types import Delta, Failed, Request, Started
from ...kit.rows import each_row

BODY: dict[str, Any] = {"messages": [USER]}
REQUEST = Request(b"", request_id="req-7", path=COUNT_PATH)


def test_the_prompt_is_that_of_a_message() -> None:
    fields: dict[str, Any] = {
        "system": "Be brief", "tools": [TOOL], "tool_choice": {"type": "any"}, "thinking": {"type": "disabled"},
        "output_config": {"effort": "low"},
    }  # fmt: skip
    (counted,) = parse({**BODY, **fields}, REQUEST, REASONING).generations
    (generated,) = call(REASONING, **fields).generations
    assert counted == msgspec.structs.replace(generated, tokenize=True, sampling=counted.sampling)
    assert not counted.stream


def test_what_a_message_has_means_nothing() -> None:
    (made,) = parse(
        {**ASKED, "stream": True, "temperature": 0.5, "stop_sequences": ["a"]}, REQUEST, SETTINGS
    ).generations
    assert made == parse(BODY, REQUEST, SETTINGS).generations[0]


def test_the_answer() -> None:
    reply = parse(BODY, REQUEST, SETTINGS).reply
    assert whole(reply, Started(17, 16), Delta(0, "", finish=end("length", 0))) == {"input_tokens": 17}
    assert (reply.status, reply.finished, dict(reply.headers)) == (200, True, {"request-id": "req-7"})


def test_a_failure() -> None:
    reply = parse(BODY, REQUEST, SETTINGS).reply
    (body,) = feed(reply, Failed.of(ContextError("messages: too long", "messages")))
    assert json.loads(body) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "messages: too long"},
        "request_id": "req-7",
    }
    assert (reply.status, reply.finished, type(reply.failure)) == (400, True, ContextError)


@each_row(
    ("body", "place"),
    [({}, "messages"), ({**BODY, "tools": [{}]}, "tools[0].name"), ({**BODY, "max_tokens": -1}, "max_tokens")],
)
def test_what_is_refused(body: dict[str, Any], place: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_count(body, REQUEST, SETTINGS)
    assert caught.value.param == place


def test_a_refusal() -> None:
    answer = refuse(PayloadError("the body is not JSON"), None, REQUEST, SETTINGS)
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["type"] == "invalid_request_error"
