"""The minimal chat API: what is asked of the engine, and answers and errors in their three forms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from openai._streaming import SSEDecoder

from lmi.formatters import ParsedRequest, Request, Response, minimal, receive

from ..kit.answers.events import feed
from ..kit.answers.shapes import shape_of
from ..kit.api.errors import (
    GenerationError,
    LmiError,
    OverloadedError,
    PayloadError,
    UnauthorizedError,
)
from ..kit.api.options import typed_settings
from ..kit.api.types import (
    JSON,
    SSE,
    Conversation,
    Delta,
    Event,
    Failed,
    Finish,
    FinishReason,
    ResponseEncoder,
    Started,
    said,
)
from ..kit.rows import each_row

SETTINGS = typed_settings(model_name="served")
CHAT = "/chat/completions"
EVENTS = "/chat/sse"
USER = {"role": "user", "content": "Hello, world!"}
END = b"data: [END]\n\n"
FORMS: dict[str, dict[str, Any]] = {
    "whole": {"path": CHAT, "stream": False},
    "lines": {"path": CHAT, "stream": True},
    "events": {"path": EVENTS},
}


def request(path: str = CHAT, /, **fields: Any) -> Request:
    return Request(json.dumps({"model": "model-name", "messages": [USER], **fields}).encode(), path=path)


def call(path: str = CHAT, /, **fields: Any) -> ParsedRequest:
    received = receive(request(path, **fields), SETTINGS)
    assert isinstance(received, ParsedRequest), received
    return received


def reply_of(form: str) -> ResponseEncoder:
    shape = dict(FORMS[form])
    return call(shape.pop("path"), **shape).reply


def refused(path: str = CHAT, /, **fields: Any) -> Response:
    answer = receive(request(path, **fields), SETTINGS)
    assert isinstance(answer, Response)
    return answer


def events_of(data: bytes) -> list[tuple[str | None, str]]:
    """Read by a parser that was not written for this API, cut at every byte."""

    def pieces() -> Iterator[bytes]:
        yield from (data[index : index + 1] for index in range(len(data)))

    return [(event.event, event.data) for event in SSEDecoder().iter_bytes(pieces())]


END_OF_TEXT = Finish("length", generated_tokens=3)
SAMPLE_EVENTS: tuple[Event, ...] = (
    Started(4),
    Delta(0, "I'm "),
    Delta(0, "doing well"),
    Delta(0, ", thank you!", (), END_OF_TEXT),
)
"""The text of the minimal chat document, Response Formats, 2 and 3."""


# --- The samples of the minimal chat document, Response Formats ---

SAMPLE_WHOLE: dict[str, Any] = {
    "id": "cmpl-123abc",
    "model": "model-name",
    "created": 1678048938,
    "message": {
        "role": "assistant",
        "content": "I'm doing well, thank you for asking! How can I help you today?",
    },
    "done": True,
}
SAMPLE_LINES = [
    b'{"message":{"role":"assistant","content":"I\'m "},"done":false,"index":0}\n',
    b'{"message":{"role":"assistant","content":"doing well"},"done":false,"index":1}\n',
    b'{"message":{"role":"assistant","content":", thank you!"},"done":true,"index":2}\n',
]
SAMPLE_SSE = [
    b'data: {"message":{"role":"assistant","content":"I\'m "},"done":false,"index":0}\n\n',
    b'data: {"message":{"role":"assistant","content":"doing well"},"done":false,"index":1}\n\n',
    b'data: {"message":{"role":"assistant","content":", thank you!"},"done":false,"index":2}\n\n',
    END,
]


def test_sample_whole() -> None:
    reply = reply_of("whole")
    text = SAMPLE_WHOLE["message"]["content"]
    (body,) = feed(reply, Started(4), Delta(0, text, (), END_OF_TEXT))
    answer = json.loads(body)
    assert shape_of(answer) == shape_of(SAMPLE_WHOLE)
    assert answer["id"].startswith("cmpl-")
    assert answer | {"id": "", "created": 0} == SAMPLE_WHOLE | {"id": "", "created": 0}
    assert (reply.status, reply.content_type, dict(reply.headers)) == (200, JSON, {})


def test_sample_lines() -> None:
    reply = reply_of("lines")
    assert feed(reply, *SAMPLE_EVENTS) == SAMPLE_LINES
    assert (reply.status, reply.content_type) == (200, "application/json")
    assert reply.headers == {"Cache-Control": "no-cache"}


def test_sample_events() -> None:
    reply = reply_of("events")
    records = feed(reply, *SAMPLE_EVENTS)
    assert records == SAMPLE_SSE
    assert (reply.status, reply.content_type) == (200, "text/event-stream")
    assert reply.headers == {"Cache-Control": "no-cache"}
    read = events_of(b"".join(records))
    assert [data for _, data in read] == [record[6:-2].decode() for record in SAMPLE_SSE]


@each_row("reason", ["eos", "stop", "length"])
def test_an_end_without_text(reason: FinishReason) -> None:
    events = (Started(4), Delta(0, "a"), Delta(0, "", (), Finish(reason)))
    lines = [json.loads(line) for line in feed(reply_of("lines"), *events)]
    assert [(line["message"]["content"], line["done"], line["index"]) for line in lines] == [
        ("a", False, 0),
        ("", True, 1),
    ]
    assert len(feed(reply_of("events"), *events)) == 2


def test_reasoning_is_not_sent() -> None:
    events = (Delta(0, "", reasoning="Hm."), Delta(0, "a", (), END_OF_TEXT, reasoning="Well."))
    for form in FORMS:
        data = b"".join(feed(reply_of(form), *events))
        assert b"Hm" not in data
        assert b"Well" not in data
        assert data.count(b'"content":"a"') == 1


# --- The samples of the minimal chat document, Error Responses ---

SAMPLE_ERROR: dict[str, Any] = {
    "error": {
        "message": "Error message describing what went wrong",
        "type": "error_type",
        "code": "error_code",
    }
}
SAMPLE_ERROR_LINE: dict[str, Any] = {**SAMPLE_ERROR, "done": True}

ERRORS: list[tuple[LmiError, int]] = [
    (PayloadError("model: expected a name", "model"), 400),
    (UnauthorizedError("the API key is missing"), 401),
    (OverloadedError("too many requests"), 429),
    (GenerationError("the engine failed"), 500),
]
"""The status is the error's own."""


def check_error(data: bytes, form: str, message: str) -> None:
    if form == "events":
        assert data.endswith(b"\n\n" + END)
        assert data.startswith(b"event: error\ndata: {")
        (kind, detail), (last_kind, last) = events_of(data)
        assert (kind, last_kind, last) == ("error", None, "[END]")
        told = json.loads(detail)
        assert shape_of(told) == shape_of(SAMPLE_ERROR["error"])
    elif form == "lines":
        assert data.endswith(b"}\n")
        assert data.count(b"\n") == 1
        line = json.loads(data)
        assert shape_of(line) == shape_of(SAMPLE_ERROR_LINE)
        assert line["done"] is True
        told = line["error"]
    else:
        body = json.loads(data)
        assert shape_of(body) == shape_of(SAMPLE_ERROR)
        told = body["error"]
    assert told["message"] == message


HEADERS = {"whole": {}, "lines": {"Cache-Control": "no-cache"}, "events": {"Cache-Control": "no-cache"}}


@each_row("form", FORMS)
@each_row(("error", "status"), ERRORS, ids=lambda value: type(value).__name__)
def test_errors(form: str, error: LmiError, status: int) -> None:
    """The three forms; a browser's EventSource reads no answer but a 200 (docs/decisions.md: Minimal chat errors)."""
    shape = dict(FORMS[form])
    answer = minimal.refuse(error, {"stream": shape.get("stream")}, Request(b"", path=shape["path"]), SETTINGS)
    check_error(answer.body, form, error.message)
    expected = (200, SSE) if form == "events" else (status, JSON)
    assert (answer.status, answer.content_type) == expected
    assert answer.headers == HEADERS[form]
    assert answer.failure is error
    reply = reply_of(form)
    assert b"".join(feed(reply, Started(1), Failed.of(error))) == answer.body
    assert (reply.status, reply.content_type, reply.headers) == (*expected, HEADERS[form])
    assert reply.failure is not None


@each_row("form", ["lines", "events"])
def test_an_error_within_a_stream(form: str) -> None:
    reply = reply_of(form)
    records = feed(reply, Started(1), Delta(0, "a"), Failed.of(GenerationError("gone")))
    check_error(b"".join(records[1:]), form, "gone")
    assert (reply.status, reply.finished) == (200, True)


@each_row("form", FORMS)
def test_a_generation_that_was_cut_off(form: str) -> None:
    reply = reply_of(form)
    records = feed(reply, Delta(0, "a"), Delta(0, "b", (), Finish("abort")))
    texts = [] if form == "whole" else records[:2]
    assert len(texts) == (0 if form == "whole" else 2)
    check_error(b"".join(records[len(texts) :]), form, "the generation was cut off before its end")


# --- Requests ---


@each_row("form", FORMS)
def test_the_request_of_the_document(form: str) -> None:
    """The minimal chat document, Request Body for `/chat/completions`, and for `/chat/sse`."""
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Hello, how are you?"},
    ]
    shape = dict(FORMS[form])
    received = call(shape.pop("path"), messages=messages, temperature=0.7, **shape)
    (generation,) = received.generations
    assert isinstance(generation.prompt, Conversation)
    assert said(generation.prompt) == messages
    assert generation.sampling.temperature == 0.7
    assert generation.stream is (form != "whole")
    assert generation.sampling.max_tokens is None


@each_row("stream", [None, False, True])
def test_events_are_a_stream_whatever_the_body_says(stream: bool | None) -> None:
    received = call(EVENTS, stream=stream)
    assert received.generations[0].stream
    assert received.reply.content_type == SSE


TOOL = {"type": "function", "function": {"name": "f"}}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "model: expected the name of a model, a string, got None"),
    ({"model": 5}, "model: expected the name of a model"),
    (
        {"messages": [{"role": "tool", "content": "a", "tool_call_id": "1"}]},
        "messages[0].role: expected 'system' or 'user' or 'assistant', got 'tool'",
    ),
    (
        {"messages": [USER, {"role": "boss", "content": "a"}]},
        "messages[1].role: expected 'system' or 'user' or 'assistant', got 'boss'",
    ),
    ({"n": 2}, "n: not supported"),
    ({"logprobs": True}, "logprobs: not supported"),
    ({"tools": [TOOL]}, "tools: not supported"),
    ({"functions": [{"name": "f"}]}, "functions: not supported"),
]


@each_row("form", FORMS)
@each_row(("fields", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_refused(form: str, fields: dict[str, Any], message: str) -> None:
    shape = dict(FORMS[form])
    answer = refused(shape.pop("path"), **shape, **fields)
    assert answer.failure is not None
    assert answer.failure.message.startswith(message)
    check_error(answer.body, form, answer.failure.message)
    assert answer.status == (200 if form == "events" else 400)


def test_a_stream_that_is_no_boolean() -> None:
    for path, form in [(CHAT, "whole"), (EVENTS, "events")]:
        check_error(refused(path, stream="yes").body, form, "stream: expected true or false, got 'yes'")


def test_a_body_that_is_not_json() -> None:
    for path, form, status in [(CHAT, "whole", 400), (EVENTS, "events", 200)]:
        answer = receive(Request(b"hello", path=path), SETTINGS)
        assert isinstance(answer, Response)
        assert answer.failure is not None
        check_error(answer.body, form, answer.failure.message)
        assert answer.status == status


def test_a_get_without_a_request() -> None:
    answer = receive(Request(b"", path=EVENTS, method="GET"), SETTINGS)
    assert isinstance(answer, Response)
    check_error(
        answer.body, "events", "request: expected the request as JSON in this query parameter, but there is none"
    )


def test_one_path_for_all_forms() -> None:
    """Hosts with /invocations alone: the attribute tells the dialect, and Accept the form of a stream."""
    attributes = {"dialect": "minimal"}
    body = json.dumps({"model": "m", "messages": [USER], "stream": True}).encode()
    for accept, content_type in [("text/event-stream", SSE), ("*/*", JSON), ("", JSON)]:
        received = receive(Request(body, {"accept": accept}, attributes=attributes), SETTINGS)
        assert isinstance(received, ParsedRequest)
        assert received.reply.content_type == content_type
    received = receive(Request(body, {"accept": SSE}, path=CHAT), SETTINGS)
    assert isinstance(received, ParsedRequest)
    assert received.reply.content_type == JSON
