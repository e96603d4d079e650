"""OpenAI requests that are refused: the field is named in the error, and no body raises anything but a refusal."""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
import pytest

from lmi.formatters.openai import parse, refuse

from ...kit.answers.openai import CHAT, SETTINGS, STRICT, TEXT, USER
from ...kit.api.dialects import forget_logged_names, receive
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
from ...kit.api.types import ParsedRequest, Request
from ...kit.rows import each_row


def refused(payload: dict[str, Any]) -> LmiError:
    with pytest.raises(LmiError) as caught:
        parse(payload, Request(b""), STRICT)
    return caught.value


BOOLEANS = ("stream", "ignore_eos", "skip_special_tokens", "spaces_between_special_tokens", "use_beam_search")
CHAT_BOOLEANS = ("logprobs", "parallel_tool_calls", "add_generation_prompt", "continue_final_message", "echo")
INTEGERS = ("n", "seed", "top_k", "min_tokens", "truncate_prompt_tokens", "prompt_logprobs", "max_tokens", "priority")
NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "min_p", "repetition_penalty")

WRONG: list[tuple[dict[str, Any], tuple[str, ...], list[Any]]] = [
    (CHAT, BOOLEANS + CHAT_BOOLEANS, [0, 1, "true", [], {}]),
    (CHAT, (*INTEGERS, "top_logprobs", "max_completion_tokens"), ["many", "5", True, 5.5, [], {}]),
    (CHAT, NUMBERS, ["many", True, [], {}]),
    (CHAT, ("stop", "bad_words"), [5, True, {}]),
    (CHAT, ("stop_token_ids",), [5, "5", {}]),
    (CHAT, ("logit_bias", "stream_options", "chat_template_kwargs"), [5, "5", [], True]),
    (CHAT, ("model", "reasoning_effort"), [5, [], {}, True]),
    (CHAT, ("response_format", "structured_outputs"), [5, "json", [], True]),
    (CHAT, ("guided_json", "guided_choice"), [5, True]),
    (CHAT, ("guided_regex", "guided_grammar"), [5, {}, [], True]),
    (CHAT, ("messages",), [5, "hi", {}]),
    (CHAT, ("tools", "functions"), [5, "hi", {}]),
    (CHAT, ("documents",), [5, {}, "text"]),
    (CHAT, ("modalities",), [5, "text", {}]),
    (TEXT, (*BOOLEANS, "echo"), [0, 1, "true", [], {}]),
    (TEXT, (*INTEGERS, "best_of"), ["many", True, 5.5, [], {}]),
    (TEXT, ("logprobs",), ["many", 5.5, [], {}]),
    (TEXT, ("suffix",), [5, []]),
    (TEXT, ("prompt",), [5, True, {}]),
]


@each_row(
    ("base", "name", "value"),
    [(base, name, value) for base, names, values in WRONG for name in names for value in values],
)
def test_wrong_type(base: dict[str, Any], name: str, value: Any) -> None:
    error = refused({**base, name: value})
    assert type(error) is PayloadError
    assert error.param == name
    assert error.message.startswith(f"{name}: expected ")
    assert error.status == 400


def _schema(schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}


MESSAGES: list[tuple[dict[str, Any], type[LmiError], str]] = [
    ({"temperature": 2.1}, ParameterError, "temperature: expected a number from 0 to 2, got 2.1"),
    ({"temperature": -1}, ParameterError, "temperature: expected a number from 0 to 2, got -1"),
    ({"top_p": 0}, ParameterError, "top_p: expected a number above 0 and up to 1, got 0"),
    ({"n": 0}, ParameterError, "n: expected an integer >= 1, got 0"),
    ({"n": 129}, ParameterError, "n: expected an integer from 1 to 128, got 129"),
    ({"presence_penalty": 3}, ParameterError, "presence_penalty: expected a number from -2 to 2, got 3"),
    ({"logit_bias": {"x": 1}}, ParameterError, "logit_bias.x: expected a token id as the key, got 'x'"),
    ({"logit_bias": {"-1": 1}}, ParameterError, "logit_bias.-1: expected a token id as the key, got '-1'"),
    ({"logit_bias": {"5": 101}}, ParameterError, "logit_bias.5: expected a number from -100 to 100, got 101"),
    ({"logit_bias": {"5": "x"}}, PayloadError, "logit_bias.5: expected a number from -100 to 100, got 'x'"),
    ({"stop": ["a", ""]}, ParameterError, "stop[1]: expected a non-empty string, got ''"),
    (
        {"stop": ["x"] * 65},
        ParameterError,
        "stop: expected at most 64 strings of 4096 characters in all",
    ),
    ({"max_tokens": -1}, ParameterError, "max_tokens: expected an integer >= "),
    ({"max_tokens": 3, "min_tokens": 4}, ParameterError, "min_tokens: expected an integer up to 3 (max_tokens), got 4"),
    ({"prompt_logprobs": 21}, ParameterError, "prompt_logprobs: expected an integer from 0 to 20, got 21"),
    ({"prompt_logprobs": 0, "stream": True}, UnsupportedError, "prompt_logprobs: not supported with stream: true"),
    (
        {"use_beam_search": True},
        UnsupportedError,
        "use_beam_search: expected False, the only value that is supported, got True",
    ),
    (
        {"length_penalty": 2},
        UnsupportedError,
        "length_penalty: expected 1.0, the only value that is supported, got 2.0",
    ),
    ({"best_of": 0}, ParameterError, "best_of: expected an integer >= 1, got 0"),
    ({"best_of": 1, "n": 2}, ParameterError, "best_of: expected an integer from 2 (n) to 128, got 1"),
    ({"best_of": 129}, ParameterError, "best_of: expected an integer from 1 to 128, got 129"),
    (
        {"best_of": 3, "n": 2, "stream": True},
        UnsupportedError,
        "best_of: above n (2) is not supported with stream: true",
    ),
    ({"watermarking": True}, UnsupportedError, "watermarking: expected False, the only value that is supported"),
    ({"ec_transfer_params": {}}, UnsupportedError, "ec_transfer_params: not supported"),
    ({"stream_options": {}}, ParameterError, "stream_options: expected none without stream: true, got {}"),
    (
        {"stream": True, "stream_options": {"include_usage": 1}},
        PayloadError,
        "stream_options.include_usage: expected true or false, got 1",
    ),
    (
        {"truncate_prompt_tokens": 0},
        ParameterError,
        "truncate_prompt_tokens: expected an integer >= 1, or -1 for what fits, got 0",
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
    ({"output_format": {"type": "json_schema"}}, UnsupportedError, "output_format: not supported"),
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
    ({"guided_whitespace_pattern": "x"}, UnsupportedError, "guided_whitespace_pattern: not supported"),
    ({"temprature": 1}, UnsupportedError, "temprature: unknown field; did you mean temperature?"),
]


@each_row("base", [CHAT, TEXT], ids=["chat", "text"])
@each_row(("given_fields", "kind", "message"), MESSAGES)
def test_message(base: dict[str, Any], given_fields: dict[str, Any], kind: type[LmiError], message: str) -> None:
    error = refused({**base, **given_fields})
    assert type(error) is kind
    assert error.message.startswith(message)
    assert error.param == error.message.partition(":")[0]


CHAT_MESSAGES: list[tuple[dict[str, Any], type[LmiError], str]] = [
    ({"max_tokens": 0}, ParameterError, "max_tokens: expected an integer >= 1, got 0"),
    ({"max_completion_tokens": 0}, ParameterError, "max_completion_tokens: expected an integer >= 1, got 0"),
    ({"logprobs": True, "top_logprobs": 99}, ParameterError, "top_logprobs: expected an integer from 0 to 20, got 99"),
    ({"top_logprobs": 2}, ParameterError, "top_logprobs: expected none without logprobs: true, got 2"),
    ({"logprobs": True, "top_logprobs": -1}, ParameterError, "top_logprobs: expected an integer >= 0, got -1"),
    (
        {"messages": [{"role": "assistant", "content": "a" * (1 << 20) + "a"}], "echo": True, "n": 128},
        ParameterError,
        "echo: expected at most 134217728 characters in all (option.max_answer_bytes)",
    ),
    ({"audio": {"voice": "x"}}, UnsupportedError, "audio: not supported"),
    ({"web_search_options": {}}, UnsupportedError, "web_search_options: not supported"),
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


def test_what_goes_to_the_engine_is_not_too_deep() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"a": [deep]}
    for given_fields, name in (
        ({"chat_template_kwargs": deep}, "chat_template_kwargs"),
        ({"documents": [deep]}, "documents[0]"),
        ({"guided_json": deep}, "guided_json"),
        ({"functions": [{"name": "f", "parameters": deep}]}, "functions[0].parameters"),
    ):
        assert refused({**CHAT, **given_fields}).message == f"{name}: expected at most 100 levels"


@each_row("depth", [100, 900, 970, 985, 990, 995, 1000])
@each_row("field", ["chat_template_kwargs", "messages", "tools", "guided_json", "metadata", "odd"])
def test_no_depth_is_too_deep(depth: int, field: str) -> None:
    body = b'{"messages": [{"role": "user", "content": "a"}], "' + field.encode() + b'":'
    received = receive(Request(body + b'{"a":' * depth + b"1" + b"}" * depth + b"}"), SETTINGS)
    if isinstance(received, ParsedRequest):
        assert msgspec.msgpack.encode(received.generations)


def test_unknown_fields_are_ignored_with_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    forget_logged_names(monkeypatch)
    payload = {
        "messages": [{**USER, "odd": "secret"}, {"role": "user", "content": [{"type": "text", "text": "", "odd": 1}]}],
        "odd": "secret",
    }
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            parse(payload, Request(b""), SETTINGS)
    assert caplog.messages == [
        f"unknown request field ignored: {name}" for name in ("messages[].odd", "messages[].content[].odd", "odd")
    ]


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
