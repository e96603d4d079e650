"""Requests that ask for no generation, in any dialect: a body with `requestType` (djl_python, vllm_async_service).

    {"requestType": "NEW_SESSION"}                      creates a session
    {"requestType": "CLOSE"}                            closes the one that the session header names
    {"requestType": "CANCEL", "request_id": "..."}      ends a running request

As there, `prompt`, `inputs` and `messages` are looked for first: a body with one of them is what it looks like.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..model.errors import Fault, UnsupportedError
from ..model.options import Settings
from .base import Payload, Request, Response
from .common.json_body import KIND
from .dialect import Dialect

__all__ = [
    "CANCEL",
    "CLOSE",
    "KIND",
    "KINDS",
    "NEW_SESSION",
    "NO_CONTROL",
    "REQUEST_ID",
    "Control",
    "is_users",
]

REQUEST_ID = "request_id"
NEW_SESSION, CLOSE, CANCEL = KINDS = ("NEW_SESSION", "CLOSE", "CANCEL")


class Control(Protocol):
    """Who does what such a request asks for."""

    def answer(self, payload: Payload, request: Request) -> Response:
        """The answer; raises LmiError. May read and write files."""
        ...


class _None:
    def answer(self, payload: Payload, request: Request) -> Response:
        raise UnsupportedError.because(Fault(KIND, "nobody is there to serve it"))


NO_CONTROL: Control = _None()


def is_users(
    payload: Payload, request: Request, settings: Settings, user_dialects: Sequence[Dialect], explicit: Dialect | None
) -> bool:
    """Whether a dialect of the user's takes the body: the request's `explicit` one, or by what is in it."""
    if explicit is not None:
        return explicit in user_dialects
    return any(known.matches is None or known.matches(payload, request, settings) for known in user_dialects)
