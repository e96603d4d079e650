"""OpenAI requests that are refused: the field is named in the error, and no body raises anything but a refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lmi.formatters.openai import parse, refuse

from ...kit.answers.openai import CHAT, SETTINGS, STRICT, TEXT
from ...kit.api.errors import (
    ContextError,
    ForbiddenError,
    GenerationError,
    LmiError,
    MediaTypeError,
    NotFoundError,
    OverloadedError,
    ParameterError,
    PayloadError,
    TimeLimitError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedError,
)
from ...kit.api.types import Request
from ...kit.rows import each_row


def refused(payload: dict[str, Any]) -> LmiError:
    with pytest.raises(LmiError) as caught:
        parse(payload, Request(b""), STRICT)
    return caught.value


def _schema(schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}


MESSAGES: list[tuple[dict[str, Any], type[LmiError], str]] = [
    ({"max_tokens": 3, "min_tokens": 4}, ParameterError, "min_tokens: expected an integer up to 3 (max_tokens), got 4"),
    ({"prompt_logprobs": 0, "stream": True}, UnsupportedError, "prompt_logprobs: not supported with stream: true"),
    ({"best_of": 1, "n": 2}, ParameterError, "best_of: expected an integer from 2 (n) to 128, got 1"),
    (
        {"best_of": 3, "n": 2, "stream": True},
        UnsupportedError,
        "best_of: above n (2) is not supported with stream: true",
    ),
    ({"stream_options": {}}, ParameterError, "stream_options: expected none without stream: true, got {}"),
    (
        {"stream": True, "stream_options": {"include_usage": 1}},
        PayloadError,
        "stream_options.include_usage: expected true or false, got 1",
    ),
    ({"stream": True, "stream_options": {"usage": True}}, UnsupportedError, "stream_options.usage: unknown field"),
    ({"response_format": {}}, PayloadError, "response_format.type: expected 'text' or 'json_object' or 'json_schema'"),
    ({"response_format": {"type": "xml"}}, ParameterError, "response_format.type: expected 'text' or "),
    (
        {"response_format": {"type": "structural_tag"}},
        ParameterError,
        "response_format: expected a structural tag, an object with format or structures, or it as JSON text, got ",
    ),
    ({"response_format": {"type": "json_schema"}}, PayloadError, "response_format.json_schema: expected an object"),
    (_schema(None), PayloadError, "response_format.json_schema.schema: expected a JSON schema, a non-empty object"),
    (_schema({}), ParameterError, "response_format.json_schema.schema: expected a JSON schema, a non-empty object"),
    (_schema(""), PayloadError, "response_format.json_schema.schema: expected a JSON schema, a non-empty object"),
    (
        {"response_format": {"type": "json_object", "schema": {"a": 1}, "value": {"b": 1}}},
        ParameterError,
        "response_format.value: cannot be combined with response_format.schema",
    ),
    (
        {"response_format": {"type": "json_object", "json_schema": {"schema": {"a": 1}}}},
        ParameterError,
        "response_format.json_schema: expected none with the type 'json_object', got ",
    ),
    (
        {"response_format": {"type": "text", "schema": {"a": 1}}},
        ParameterError,
        "response_format.schema: expected none with the type 'text', got ",
    ),
    (
        {"response_format": {"type": "json_object", "schema": {}}},
        ParameterError,
        "response_format.schema: expected a JSON schema, a non-empty object",
    ),
    (
        {"response_format": {**_schema({"a": 1})["response_format"], "schema": {"b": 1}}},
        ParameterError,
        "response_format.schema: expected none with the type 'json_schema', got ",
    ),
    ({"response_format": {"type": "text", "regex": "a"}}, UnsupportedError, "response_format.regex: unknown field"),
    (
        {"guided_grammar": "a", "structured_outputs": {"grammar": "b"}},
        ParameterError,
        "guided_grammar: cannot be combined with structured_outputs",
    ),
    ({"structured_outputs": {}}, ParameterError, "structured_outputs: expected exactly one of json, regex, "),
    ({"structured_outputs": {"json": {}}}, ParameterError, "structured_outputs.json: expected a JSON schema, "),
    ({"structured_outputs": {"json_object": False}}, ParameterError, "structured_outputs.json_object: expected true"),
    ({"structured_outputs": {"choice": []}}, ParameterError, "structured_outputs.choice: expected a non-empty list"),
    ({"structured_outputs": {"choice": [""]}}, ParameterError, "structured_outputs.choice[0]: expected a non-empty"),
    ({"structured_outputs": {"regex": ""}}, ParameterError, "structured_outputs.regex: expected a non-empty string"),
    (
        {"structured_outputs": {"regex": "a", "json_object": True}},
        ParameterError,
        "structured_outputs: expected exactly one of json, regex, choice, grammar, json_object, structural_tag, got ",
    ),
    (
        {"structured_outputs": {"regex": "a", "whitespace_pattern": " "}},
        UnsupportedError,
        "structured_outputs.whitespace_pattern: not supported",
    ),
    ({"structured_outputs": {"structural_tag": "x"}}, PayloadError, "structured_outputs.structural_tag: expected a st"),
    ({"structured_outputs": {"structural_tag": {}}}, ParameterError, "structured_outputs.structural_tag: expected a s"),
    ({"guided_grammar": " "}, ParameterError, "guided_grammar: expected a non-empty string, got ' '"),
    (
        {"guided_regex": "a", "guided_json": {"a": 1}},
        ParameterError,
        "guided_regex: cannot be combined with guided_json",
    ),
]


@each_row("base", [CHAT, TEXT], ids=["chat", "text"])
@each_row(("given_fields", "kind", "message"), MESSAGES)
def test_message(base: dict[str, Any], given_fields: dict[str, Any], kind: type[LmiError], message: str) -> None:
    error = refused({**base, **given_fields})
    assert type(error) is kind
    assert error.message.startswith(message)
    assert error.param == error.message.partition(":")[0]


CHAT_MESSAGES: list[tuple[dict[str, Any], type[LmiError], str]] = [
    ({"logprobs": True, "top_logprobs": 99}, ParameterError, "top_logprobs: expected an integer from 0 to 20, got 99"),
    ({"top_logprobs": 2}, ParameterError, "top_logprobs: expected none without logprobs: true, got 2"),
    (
        {"messages": [{"role": "assistant", "content": "a" * (1 << 20) + "a"}], "echo": True, "n": 128},
        ParameterError,
        "echo: expected at most 134217728 characters in all (option.max_answer_bytes)",
    ),
    ({"modalities": ["text", "audio"]}, UnsupportedError, "modalities[1]: expected 'text', the only one that is "),
    (
        {"continue_final_message": True, "add_generation_prompt": True},
        ParameterError,
        "continue_final_message: cannot be combined with add_generation_prompt",
    ),
]


@each_row(("given_fields", "kind", "message"), CHAT_MESSAGES)
def test_message_of_chat(given_fields: dict[str, Any], kind: type[LmiError], message: str) -> None:
    error = refused({**CHAT, **given_fields})
    assert type(error) is kind
    assert error.message.startswith(message)


# --- Errors as answers ---


@each_row(
    ("kind", "status", "word", "code"),
    [
        (PayloadError, 400, "invalid_request_error", "invalid_payload"),
        (ParameterError, 400, "invalid_request_error", "invalid_parameter"),
        (ContextError, 400, "invalid_request_error", "context_length_exceeded"),
        (UnsupportedError, 400, "invalid_request_error", "unsupported"),
        (UnauthorizedError, 401, "authentication_error", "unauthorized"),
        (ForbiddenError, 403, "invalid_request_error", "forbidden"),
        (NotFoundError, 404, "invalid_request_error", "not_found"),
        (MediaTypeError, 415, "invalid_request_error", "unsupported_media_type"),
        (OverloadedError, 429, "rate_limit_error", "rate_limit_exceeded"),
        (TooLargeError, 413, "invalid_request_error", "request_too_large"),
        (TimeLimitError, 504, "server_error", "time_limit_exceeded"),
        (GenerationError, 500, "server_error", "generation_failed"),
        (UnavailableError, 503, "server_error", "engine_unavailable"),
    ],
)
def test_refuse(kind: type[LmiError], status: int, word: str, code: str) -> None:
    """Plain JSON with its status, for streamed requests too (docs/decisions.md: OpenAI errors)."""
    error = kind("the\nreason", "temperature")
    for payload in (None, {**CHAT, "stream": True}):
        answer = refuse(error, payload, Request(b""), SETTINGS)
        assert (answer.status, answer.content_type, answer.failure) == (status, "application/json", error)
        assert json.loads(answer.body) == {
            "error": {"message": "the reason", "type": word, "param": "temperature", "code": code}
        }
