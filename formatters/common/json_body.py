"""A body as a JSON object, or what is wrong with it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from ...model.errors import PayloadError
from ..base import Payload
from .body_size import check_body

__all__ = ["TOO_DEEP", "read_json"]

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
MAX_EXPLAINED_BYTES = 4 << 20
"""Bytes of a body for which no better reason is looked for: that takes some twenty times as long as to read it."""
DIGITS = 300
"""Of an integer: the longest that a double holds has 309."""
MAX_SHOWN_CHARACTERS = 120
"""How much of a client's text a message repeats."""


class _Odd:
    """A number that is none in JSON, or that no double holds."""

    def __init__(self, text: str) -> None:
        self.text = text


def _why_unreadable(body: bytes) -> str | None:
    """A better reason than the decoder's, for what clients do get wrong.

    NaN and Infinity are no JSON, but Python's encoder writes them: the error names their field.
    """
    if len(body) > MAX_EXPLAINED_BYTES:
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
        return f"{path[:MAX_SHOWN_CHARACTERS]}: expected a finite number, got {odd[0].text[:MAX_SHOWN_CHARACTERS]}"
    if HALF_PAIR.search(text):
        return "the body has a \\u escape of an unpaired surrogate"
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
