"""The errors of Anthropic's API: `{"type": "error", "error": {"type", "message"}, "request_id"}` with their status.

The error's type is told by the status, as in Anthropic's documentation of errors; its clients make their exceptions of
the status, and show the message.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...model.errors import LmiError, ThreadError
from ..base import Response, encode
from .bodies import ErrorBody, ErrorObject

__all__ = ["error_body", "error_response", "id_header"]

TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""By status; any other one is the request's fault below 500, and ours from there on."""


def error_body(error: LmiError, request_id: str) -> ErrorBody:
    """The body for `error`."""
    kind = TYPES.get(error.status) or ("invalid_request_error" if error.status < 500 else "api_error")
    # A tool's schema is judged by the engine's side, which knows it by OpenAI's name.
    message = error.message.replace("].function.parameters", "].input_schema")
    if isinstance(error, ThreadError):
        details = {"error_code": error.code, "unsupported": [error.param]}
        return ErrorBody(ErrorObject(kind, message, details), request_id)
    return ErrorBody(ErrorObject(kind, message), request_id)


def error_response(error: LmiError, request_id: str) -> Response:
    """The response for an error where nothing has been sent yet."""
    return Response(encode(error_body(error, request_id)), error.status, headers=id_header(request_id), failure=error)


def id_header(request_id: str) -> dict[str, str]:
    """The header by which Anthropic's clients know a request."""
    return {"request-id": request_id} if request_id else {}
