"""What must hold for every request, however hostile: a call that the engine can be sent, or a well-formed refusal."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import msgspec

from ..kit.api.dialects import receive, route_of
from ..kit.api.engine import media_parts
from ..kit.api.errors import RequestError
from ..kit.api.types import JSON, JSON_LINES, SSE, Conversation, Generation, ParsedRequest, Request, Response, Settings

__all__ = ["BrokenRuleError", "check"]

SECONDS = 2.0
"""Of CPU: far above what any body of these sizes needs, far below what would stall others."""
LONGEST = 4096
"""Bytes of a refusal: what a client sent must not come back as a whole."""

FORMS = (
    {"error", "code"},
    {"generated_text", "details", "error"},
    {"token", "generated_text", "details", "error"},
    {"code", "error", "message"},
    {"error", "error_type"},
    {"error"},
    {"error", "done"},
    {"error", "message"},
    {"message", "type", "code"},
    {"error", "message", "status"},
    {"code", "detail", "error", "message", "status"},
    {"code", "error", "message", "param", "status"},
    {"type", "error", "request_id"},
)
"""The keys of every dialect's errors."""


class BrokenRuleError(AssertionError):
    """Something that must not happen."""


def _must(holds: object, why: str, request: Request) -> None:
    if not holds:
        raise BrokenRuleError(
            f"{why}: {request.method} {request.path} {request.query} {request.attributes} {request.body[:400]!r}"
        )


def check(request: Request, settings: Settings) -> ParsedRequest | Response:
    """What became of a request; raises BrokenRuleError, or what `receive` raises."""
    start = time.thread_time()
    received = receive(request, settings)
    taken = time.thread_time() - start
    _must(taken < SECONDS, f"took {taken:.1f} s", request)
    if isinstance(received, ParsedRequest):
        _check_call(received, request)
    else:
        _check_answer(received, request)
    return received


def _check_call(call: ParsedRequest, request: Request) -> None:
    _must(call.generations, "a call without a generation", request)
    _must(len(call.generations) <= 2048, "too many generations", request)
    for generation in call.generations[:3]:
        # The engine's process reads what this one writes.
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(generation), type=Generation)
        _must(sent == generation, "a generation changes on its way", request)
        sampling = generation.sampling
        numbers = [one for one in msgspec.structs.astuple(sampling) if isinstance(one, float)]
        _must(all(map(math.isfinite, numbers)), "a number that is not finite", request)
        _must(1 <= sampling.n <= 128 and (sampling.best_of or 1) <= 128, "too many sequences", request)
        if isinstance(generation.prompt, Conversation):
            media_parts(generation.prompt)


def _check_answer(answer: Response, request: Request) -> None:
    found = route_of(request)
    if found and found[1].page:
        return
    failure = answer.failure
    _must(isinstance(failure, RequestError), f"refused with {failure!r}", request)
    events = answer.content_type == SSE
    _must(400 <= answer.status < 500 or (events and answer.status == 200), f"status {answer.status}", request)
    _must(answer.content_type in (JSON, JSON_LINES, SSE), f"content type {answer.content_type}", request)
    _must(len(answer.body) <= LONGEST, f"a refusal of {len(answer.body)} bytes", request)
    for name, value in answer.headers.items():
        _must((name + value).isprintable() and (name + value).isascii(), f"header {name}: {value!r}", request)
    assert failure is not None
    _must(failure.message and failure.message.isprintable(), f"message {failure.message!r}", request)
    document = _document(answer.body, request)
    _must(isinstance(document, dict) and set(document) in FORMS, f"form {document!r}", request)
    _must(failure.message in json.dumps(document, ensure_ascii=False).replace('\\"', '"').replace("\\\\", "\\"),
          "the message is not told", request)  # fmt: skip


def _document(body: bytes, request: Request) -> Any:
    """The one document of a refusal."""
    lines = [line for line in body.decode().split("\n") if line and line not in ("event: error", "data: [END]")]
    _must(len(lines) == 1, f"{len(lines)} lines", request)
    try:
        return json.loads(lines[0].removeprefix("data: "))
    except ValueError:
        _must(False, "the refusal is not JSON", request)
