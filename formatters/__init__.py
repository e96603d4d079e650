"""The wire dialects, and which one a request is in.

To add one: write a module of the shape of `base.Format` and put it into FORMATS. A service may know further ones, its
user's `own`; they are asked before ours.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec

from ..model.errors import (
    GenerationError,
    LmiError,
    MediaTypeError,
    OptionError,
    PayloadError,
    RequestError,
    UnsupportedError,
    UserCodeError,
)
from ..model.options import Settings
from . import azure, dynamic, lmi, minimal, openai, tgi
from .base import Answer, Call, Format, Payload, Request, Route
from .body_size import check_body

__all__ = [
    "FORMATS",
    "Answer",
    "Call",
    "Format",
    "Hooks",
    "Request",
    "Route",
    "check_dialect",
    "detect",
    "explicit_format",
    "read_body",
    "read_json",
    "receive",
    "refusal",
    "route_of",
]

logger = logging.getLogger(__name__)

_decode = msgspec.json.Decoder().decode


def read_json(body: bytes) -> Payload:
    """The JSON object in `body`; raises PayloadError where there is none, ParameterError where it is too much."""
    if not body.strip():
        raise PayloadError("the body is empty, expected a JSON object")
    check_body(body)
    try:
        value = _decode(body)
    except RecursionError:
        raise PayloadError(TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PayloadError(_why_unreadable(body) or f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise PayloadError(f"expected a JSON object, but the body is {JSON_TYPES.get(type(value), 'a number')}")
    return cast(Payload, value)


TOO_DEEP = "the body is nested too deeply"
JSON_TYPES: dict[type, str] = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}

HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
"""The start of an escape of one half of a surrogate pair."""
LONG = 4 << 20
"""Bytes of a body for which no better reason is looked for: that takes some twenty times as long as to read it."""
DIGITS = 300
"""Of an integer: the longest that a double holds has 309."""
SHOWN = 120
"""How much of a client's text a message repeats."""


class _Odd:
    """A number that is none in JSON, or that no double holds."""

    def __init__(self, text: str) -> None:
        self.text = text


def _why_unreadable(body: bytes) -> str | None:
    """A better reason than the decoder's, for what clients do get wrong.

    NaN and Infinity are no JSON, but Python's encoder writes them: the error names their field.
    """
    if len(body) > LONG:
        return None
    odd: list[_Odd] = []

    def note(text: str) -> _Odd:
        odd.append(_Odd(text))
        return odd[-1]

    def read_float(text: str) -> float | _Odd:
        number = float(text)
        return number if math.isfinite(number) else note(text)

    def read_int(text: str) -> int | _Odd:
        return int(text) if len(text) <= DIGITS else note(text)

    try:
        text = body.decode()
        value = json.loads(text, parse_constant=note, parse_float=read_float, parse_int=read_int)
    except UnicodeDecodeError as error:
        return f"the body is not UTF-8: {error.reason} at byte {error.start}"
    except (ValueError, RecursionError):
        return None
    if odd:
        path = _path_of(value, odd[0]) or "the body"
        return f"{path[:SHOWN]}: expected a finite number, got {odd[0].text[:SHOWN]}"
    if HALF_PAIR.search(text):
        return "the body has a \\u escape of half a surrogate pair, which is no character"
    return None


def _path_of(value: Any, wanted: object) -> str | None:
    """Where in `value` the object `wanted` is, as a dotted path. Not recursive: a client chooses the depth.

    Nor is a path made for each member: a megabyte has many.
    """
    trail: list[str | int] = []
    stack = [_members(value)]
    while stack:
        for key, item in stack[-1]:
            if item is wanted:
                return _dotted([*trail, key])
            if isinstance(item, dict | list):
                trail.append(key)
                stack.append(_members(item))
                break
        else:
            stack.pop()
            if trail:
                trail.pop()
    return None


def _members(value: Any) -> Iterator[tuple[str | int, Any]]:
    """Of an object or array, with their names; what is neither has none."""
    if isinstance(value, dict):
        return iter(cast(dict[str | int, Any], value).items())
    return iter(enumerate(value if isinstance(value, list) else ()))


def _dotted(trail: Sequence[str | int]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in trail)
    return "".join(steps).removeprefix(".")


def explicit_format(request: Request, settings: Settings, own: Sequence[Format] = ()) -> Format | None:
    """The dialect that the request's `dialect` attribute names, or `option.dialect`, or the path."""
    name = request.attributes.get("dialect") or settings.dialect
    if not name:
        found = route_of(request, own)
        return found[0] if found else None
    known = (*own, *FORMATS)
    for candidate in known:
        if name == candidate.NAME:
            return candidate
    raise PayloadError.of("dialect", name, "one of " + ", ".join(candidate.NAME for candidate in known))


def route_of(request: Request, own: Sequence[Format] = ()) -> tuple[Format, Route] | None:
    """The dialect that has a route of its own for the request, and the route."""
    taking = [(known, route) for known in (*own, *FORMATS) for route in known.ROUTES if route.takes(request)]
    return min(taking, key=lambda found: found[1].query is None, default=None)


def check_dialect(settings: Settings, own: Sequence[Format] = ()) -> None:
    """Raises OptionError if `option.dialect` names no dialect."""
    names = [known.NAME for known in (*own, *FORMATS)]
    if settings.dialect and settings.dialect not in names:
        expected = ", ".join(names)
        raise OptionError(f"option.dialect: expected one of {expected}, got {settings.dialect!r}", "dialect")


def detect(payload: Payload, request: Request, settings: Settings, own: Sequence[Format] = ()) -> Format:
    """The dialect of a request: by the request's `dialect` attribute, then `option.dialect`, the path, the body.

    Raises PayloadError where none fits (wire-decisions: Which dialect a request is).
    """
    explicit = explicit_format(request, settings, own)
    if explicit is not None:
        return explicit
    known = (*own, *FORMATS)
    for candidate in known:
        if candidate.matches(payload, request, settings):
            return candidate
    usual = fallback(settings)
    # Those of `inputs` share their mark.
    marks = {one.MARK: one.NAME for one in reversed(known) if one.MARK} | {usual.MARK: usual.NAME}
    listed = ", ".join(f"{mark} ({name})" for mark, name in reversed(marks.items()))
    raise PayloadError(f"nothing tells which dialect the body is in: expected a field {listed}", usual.MARK)


def fallback(settings: Settings) -> Format:
    """The dialect whose form errors have where none is known yet (wire-decisions: Which dialect a request is)."""
    return dynamic if settings.dynamic_batch else lmi


def _check_content_type(request: Request) -> None:
    """JSON by name, octets, or nothing said (wire-decisions: All dialects, Content type)."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in READ_AS_JSON and not given.endswith("+json"):
        raise MediaTypeError.of("Content-Type", given, "application/json")


READ_AS_JSON = ("", "application/json", "application/octet-stream", "text/json")


def _check_task(call: Call, settings: Settings) -> None:
    """A model either generates text or embeds it, in whatever dialect it is asked."""
    embeds = {generation.embedding is not None for generation in call.generations}
    if settings.embeds and False in embeds:
        raise UnsupportedError("this model embeds text and generates none: expected a field inputs or input", "inputs")
    if not settings.embeds and True in embeds:
        raise UnsupportedError("this model generates text and embeds none (option.task=text-embedding is not set)")


def _check_query(request: Request, own: Sequence[Format] = ()) -> None:
    """A GET has its body in the query."""
    found = route_of(request, own)
    if request.method == "GET" and not request.body and found and found[1].body:
        name = found[1].body
        raise PayloadError(f"{name}: expected the request as JSON in this query parameter, but there is none", name)


def read_body(request: Request) -> Payload:
    """The JSON object that a request carries; raises RequestError."""
    _check_content_type(request)
    return read_json(request.body)


class Hooks:
    """What a service may put around a dialect's `parse`. These change nothing."""

    def read(self, request: Request) -> Payload:
        """The body, as dialects are to see it; raises RequestError or UserCodeError, as `ready` does."""
        return read_body(request)

    def ready(self, call: Call, dialect: Format, payload: Payload, request: Request, settings: Settings) -> Call:
        """The call that is made in place of the one that `dialect` made of `payload`."""
        return call


PLAIN = Hooks()


def receive(request: Request, settings: Settings, own: Sequence[Format] = (), hooks: Hooks = PLAIN) -> Call | Answer:
    """The call that a request asks for, or the answer that refuses it. Raises nothing that a client can cause."""
    payload: Payload | None = None
    dialect = fallback(settings)
    try:
        # Before the body is read: an explicit dialect tells in its own form that it cannot be.
        dialect = explicit_format(request, settings, own) or dialect
        _check_query(request, own)
        payload = hooks.read(request)
        dialect = detect(payload, request, settings, own)
        call = dialect.parse(payload, request, settings)
        _check_task(call, settings)
        call = hooks.ready(call, dialect, payload, request, settings)
        return Call(call.generations, call.reply, dialect.NAME)
    except (RequestError, UserCodeError) as error:
        refused = dialect.refuse(error, payload, request, settings)
    except RecursionError:
        # A body that could just be read may still be too deep for what is done with it, such as its repr in a message.
        refused = dialect.refuse(PayloadError(TOO_DEEP), None, request, settings)
    except Exception as error:
        # A fault of ours is this request's failure, not its host's: behind DJL its client would wait for ever.
        logger.exception("request %s could not be read", request.request_id)
        failure = GenerationError(f"the request could not be read: {type(error).__name__}")
        refused = dialect.refuse(failure, None, request, settings)
    return replace(refused, dialect=dialect.NAME)


def refusal(error: LmiError, request: Request, settings: Settings) -> Answer:
    """The answer that a host gives to a request before it looks at it, in the form of the dialect that it is in.

    Only of our dialects: a request that is not admitted does not reach code of the user's.
    """
    payload: Payload | None = None
    dialect = fallback(settings)
    try:
        dialect = explicit_format(request, settings) or dialect
        payload = read_json(request.body)
        dialect = detect(payload, request, settings)
    except (RequestError, RecursionError):
        # It is refused anyway; what else is wrong with it only decides the form.
        pass
    return replace(dialect.refuse(error, payload, request, settings), dialect=dialect.NAME)


FORMATS: tuple[Format, ...] = (azure, tgi, dynamic, lmi, openai, minimal)
"""In the order in which they are asked."""
