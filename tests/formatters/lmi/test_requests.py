"""LMI requests: what is asked of the engine, in which form it is answered, and how the rest is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lmi.formatters.lmi import parse, refuse

from ...kit.api.errors import (
    ContextError,
    LmiError,
    OverloadedError,
    ParameterError,
    PayloadError,
    StartError,
    TimeLimitError,
    TooLargeError,
    UnavailableError,
    UnsupportedError,
)
from ...kit.api.options import typed_settings
from ...kit.api.types import JSON, JSON_LINES, SSE, ParsedRequest, Request, Response, Settings
from ...kit.rows import each_row

PROMPT = "What is Deep Learning?"


def settings(output_formatter: Any = None) -> Settings:
    return typed_settings(output_formatter=output_formatter)


def call(
    parameters: dict[str, Any] | None = None, *, output_formatter: str | None = None, **fields: Any
) -> ParsedRequest:
    return parse({"inputs": PROMPT, "parameters": parameters, **fields}, Request(b""), settings(output_formatter))


@each_row(
    ("parameters", "stream", "tokens", "logprobs", "prompt_logprobs"),
    [
        ({}, False, False, None, None),
        ({}, True, True, 0, None),
        ({"details": True}, False, True, 0, None),
        ({"details": True, "decoder_input_details": True}, False, True, 0, 0),
        ({"details": True, "decoder_input_details": True}, True, True, 0, 0),
        ({"logprobs": 5, "prompt_logprobs": 5}, False, False, None, None),
        ({"details": True, "logprobs": 5, "prompt_logprobs": 3}, False, True, 5, 3),
        ({"details": True, "logprobs": 0, "prompt_logprobs": 0}, False, True, 0, 0),
        ({"details": True, "top_n_tokens": 5}, False, True, 5, None),
        ({"logprobs": 5, "prompt_logprobs": 3}, True, True, 5, None),
        ({"details": True, "prompt_logprobs": 3, "decoder_input_details": True}, True, True, 0, 3),
    ],
)
def test_log_probabilities_only_where_shown(
    parameters: dict[str, Any], stream: bool, tokens: bool, logprobs: int | None, prompt_logprobs: int | None
) -> None:
    (generation,) = call(parameters, stream=stream).generations
    assert (generation.stream, generation.tokens) == (stream, tokens)
    assert (generation.sampling.logprobs, generation.sampling.prompt_logprobs) == (logprobs, prompt_logprobs)


@each_row(
    ("formatter", "stream", "content_type"),
    [
        (None, None, JSON),
        (None, False, JSON),
        (None, True, JSON_LINES),
        ("jsonlines", None, JSON_LINES),
        ("jsonlines", False, JSON),
        ("jsonlines", True, JSON_LINES),
        ("sse", None, SSE),
        ("sse", False, JSON),
        ("sse", True, SSE),
        ("json", None, JSON),
        ("json", False, JSON),
        ("json", True, JSON),
    ],
)
def test_form_of_the_answer(formatter: str | None, stream: bool | None, content_type: str) -> None:
    made = call(stream=stream, output_formatter=formatter)
    assert made.reply.content_type == content_type
    assert made.generations[0].stream is (content_type != JSON)


def test_generation() -> None:
    (generation,) = parse({"inputs": PROMPT}, Request(b"", request_id="one"), settings()).generations
    assert (generation.request_id, generation.prompt, generation.overflow) == ("one", PROMPT, "clip")
    assert generation.adapter is None


@each_row(
    ("payload", "kind", "message"),
    [
        ({}, PayloadError, "inputs: expected a non-empty string, but there is no such field"),
        ({"inputs": None}, PayloadError, "inputs: expected a non-empty string, got None"),
        ({"inputs": ""}, PayloadError, "inputs: expected a non-empty string, got ''"),
        ({"inputs": 5}, PayloadError, "inputs: expected a non-empty string, got 5"),
        ({"inputs": ["a", 5]}, PayloadError, "inputs: expected a non-empty string, got ['a', 5]"),
        (
            {"inputs": ["a", "b"]},
            PayloadError,
            "inputs: a list of prompts is not supported, expected a non-empty string",
        ),
        ({"inputs": "a", "parameters": []}, PayloadError, "parameters: expected an object, got []"),
        ({"inputs": "a", "parameters": "x"}, PayloadError, "parameters: expected an object, got 'x'"),
        ({"inputs": "a", "stream": 1}, PayloadError, "stream: expected true or false, got 1"),
        ({"inputs": "a", "stream": "true"}, PayloadError, "stream: expected true or false, got 'true'"),
    ],
)
def test_refused(payload: dict[str, Any], kind: type[LmiError], message: str) -> None:
    with pytest.raises(kind) as caught:
        parse(payload, Request(b""), settings())
    assert type(caught.value) is kind
    assert caught.value.message == message
    assert caught.value.param == message.partition(":")[0]


@each_row("nothing", [{"stream": None}, {"parameters": None}, {"adapters": None}, {"adapters": []}, {"adapters": [""]}])
def test_null_is_the_default(nothing: dict[str, Any]) -> None:
    assert parse({"inputs": PROMPT, **nothing}, Request(b""), settings()).generations == call().generations


# --- The form of a refusal ---


def test_sample_payload_error() -> None:
    """LMI's schema, Error Responses, "an issue with payload validation"; plain JSON for streamed requests too."""
    for payload in (None, {"inputs": PROMPT, "stream": True}):
        answer = refuse(PayloadError("the reason"), payload, Request(b""), settings())
        assert (answer.body, answer.status, answer.content_type) == (b'{"error":"the reason","code":424}', 424, JSON)


@each_row("payload", [None, {"inputs": PROMPT}, {"inputs": PROMPT, "stream": True}])
@each_row(("kind", "status"), [(OverloadedError, 429), (TooLargeError, 413)])
def test_what_is_refused_unseen_has_its_own_status(
    kind: type[LmiError], status: int, payload: dict[str, Any] | None
) -> None:
    answer = refuse(kind("the reason"), payload, Request(b""), settings())
    assert (answer.status, answer.content_type) == (status, JSON)
    assert json.loads(answer.body) == {"error": "the reason", "code": status}


WHOLE_ERROR = (
    b'{"generated_text":"","details":{"finish_reason":"error","generated_tokens":null,"inputs":null,"tokens":null},'
    b'"error":"the reason"}'
)
LAST_LINE_ERROR = (
    b'{"token":{"id":-1,"text":"","log_prob":-1,"special_token":true},"generated_text":"",'
    b'"details":{"finish_reason":"error","generated_tokens":null,"inputs":null},"error":"the reason"}'
)


@each_row(
    "kind", [LmiError, ParameterError, ContextError, UnsupportedError, TimeLimitError, UnavailableError, StartError]
)
@each_row(
    ("payload", "formatter", "body", "content_type"),
    [
        (None, None, WHOLE_ERROR, JSON),
        (None, "sse", WHOLE_ERROR, JSON),
        ({}, None, WHOLE_ERROR, JSON),
        ({"stream": "yes"}, None, WHOLE_ERROR, JSON),
        ({"stream": False}, "jsonlines", WHOLE_ERROR, JSON),
        ({"stream": True}, "json", WHOLE_ERROR, JSON),
        ({"stream": True}, None, LAST_LINE_ERROR + b"\n", JSON_LINES),
        ({}, "jsonlines", LAST_LINE_ERROR + b"\n", JSON_LINES),
        ({}, "sse", b"data: " + LAST_LINE_ERROR + b"\n\n", SSE),
        ({"stream": True}, "sse", b"data: " + LAST_LINE_ERROR + b"\n\n", SSE),
    ],
)
def test_refuse(
    kind: type[LmiError], payload: dict[str, Any] | None, formatter: str | None, body: bytes, content_type: str
) -> None:
    error = kind("the\nreason")
    answer = refuse(error, payload, Request(b""), settings(formatter))
    assert answer == Response(body, 424, content_type, failure=error)
