"""Anthropic's errors: their type by their status, as its clients know them."""

from __future__ import annotations

import json

import pytest

from lmi.formatters.anthropic.errors import error_response

from ...kit.api.errors import (
    ContentFilterError,
    ContextError,
    ForbiddenError,
    GenerationError,
    LmiError,
    MediaTypeError,
    ModelNotFoundError,
    NotFoundError,
    OverloadedError,
    ParameterError,
    RequestCancelledError,
    SessionError,
    TimeLimitError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
    UserCodeError,
)
from ...kit.rows import each_row


@each_row(
    ("kind", "status", "word"),
    [
        (ParameterError, 400, "invalid_request_error"),
        (ContextError, 400, "invalid_request_error"),
        (ContentFilterError, 400, "invalid_request_error"),
        (MediaTypeError, 415, "invalid_request_error"),
        (SessionError, 424, "invalid_request_error"),
        (RequestCancelledError, 499, "invalid_request_error"),
        (UnauthorizedError, 401, "authentication_error"),
        (ForbiddenError, 403, "permission_error"),
        (NotFoundError, 404, "not_found_error"),
        (ModelNotFoundError, 404, "not_found_error"),
        (TooLargeError, 413, "request_too_large"),
        (OverloadedError, 429, "rate_limit_error"),
        (LmiError, 500, "api_error"),
        (GenerationError, 500, "api_error"),
        (UserCodeError, 500, "api_error"),
        (UnavailableError, 503, "overloaded_error"),
        (TimeLimitError, 504, "timeout_error"),
    ],
)
def test_the_type(kind: type[LmiError], status: int, word: str) -> None:
    error = kind("what is wrong")
    answer = error_response(error, "req-7")
    assert (answer.status, answer.content_type, answer.failure) == (status, "application/json", error)
    assert json.loads(answer.body) == {
        "type": "error",
        "error": {"type": word, "message": "what is wrong"},
        "request_id": "req-7",
    }
    assert answer.headers == {"request-id": "req-7"}


def test_without_an_id_there_is_no_header() -> None:
    assert error_response(LmiError("no"), "").headers == {}


def test_a_tools_schema_is_named_as_the_client_knows_it() -> None:
    """The engine's side, which finds out, knows OpenAI's form."""
    error = ParameterError("tools[1].function.parameters: expected a schema", "tools[1].function.parameters")
    message = json.loads(error_response(error, "").body)["error"]["message"]
    assert message == "tools[1].input_schema: expected a schema"


@pytest.mark.engine
def test_anthropics_client_knows_the_types() -> None:
    from anthropic.types.shared import ErrorResponse
    from vllm.entrypoints.anthropic.protocol import AnthropicErrorResponse

    for kind in (ParameterError, UnauthorizedError, ForbiddenError, NotFoundError, OverloadedError, TimeLimitError,
                 UnavailableError, LmiError):  # fmt: skip
        body = error_response(kind("no"), "a").body
        read = ErrorResponse.model_validate_json(body)
        assert (read.error.message, read.request_id) == ("no", "a")
        assert AnthropicErrorResponse.model_validate_json(body).error.type == read.error.type
