"""What is wrong with a body that the decoder has refused, in words that help: which byte, the number of which field.

    {"a": "...", "b": [1, NaN   up to the fault    -> {"a": "...", "b": [1, "HERE"]}   decoded: b[1]

The decoder tells where the fault is. What stands before it is JSON, and becomes a document of its own when its brackets
are closed. To decode that costs as much again at most, and it is done only for what is short (long texts apart): a
faulty body must not cost others more time than a good one.
"""

from __future__ import annotations

import codecs
import contextlib
import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from .body_size import pieces_of

__all__ = ["why_unreadable"]

MAX_BYTES_BEFORE = 1 << 20
"""Bytes before a number that is none, with which its field is named in full; and else by its last name."""
MAX_QUOTES = 1 << 12
"""The same of quotation marks."""
MAX_OUTSIDE_BYTES = 1 << 16
"""The same of bytes that are in no string."""
MAX_PASSES = 16
"""The same of levels of what has been closed before it."""
MAX_NAME_BYTES = 120
"""A longer string is no name that a message shows."""
MAX_SHOWN_CHARACTERS = 120
"""How much of a client's text a message repeats."""

_PLACE = re.compile(r"\(byte (\d+)\)$")
_NOT_FINITE = re.compile(rb"-?(?:NaN|Infinity)")
_HUGE = re.compile(rb"(?<![\d.eE+-])-?(?:\d{301,}(?![\d.eE])|\d+(?:\.\d+)?[eE]\+?\d{3,})")
"""Integers that no double holds (the longest that one does has 309 digits), and what may be a number beyond one."""
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
"""The start of an escape of one half of a surrogate pair."""
_BUT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"{}[]")
_CLOSING = bytes.maketrans(b"{[", b"}]")
_HERE = "\x00"
_decode = msgspec.json.Decoder().decode


def why_unreadable(body: bytes, error: msgspec.DecodeError | UnicodeDecodeError) -> str:
    """The reason, better than the decoder's for what clients do get wrong.

    NaN and Infinity are no JSON, but Python's encoder writes them: the message names their field.
    """
    told = str(error)
    reason = None
    if isinstance(error, UnicodeDecodeError):
        reason = _not_utf8(body)
    elif "surrogate" in told or ("truncated" in told and _HALF_PAIR.search(body[-len('\\ud800\\u"') :])):
        reason = "the body has a \\u escape of an unpaired surrogate"
    elif isinstance(error, msgspec.ValidationError):
        reason = _huge_number(body)
    elif place := _PLACE.search(told):
        reason = _fault_at(body, int(place[1]))
    return reason or f"the body is not JSON: {told}"


def _fault_at(body: bytes, place: int) -> str | None:
    """What is wrong at this byte, outside of strings."""
    if body[place : place + 1] >= b"\x80":
        return _not_utf8(body)
    start = place - (body[max(0, place - 1) : place] == b"-")
    odd = _NOT_FINITE.match(body, start)
    if odd is None:
        return None
    before = _without_escapes(body[max(0, start - MAX_BYTES_BEFORE) : start]).rsplit(b'"', MAX_QUOTES)
    whole = start <= MAX_BYTES_BEFORE and len(before) <= MAX_QUOTES
    field = _path(before) if whole else _last_name(before)
    return _not_finite(f"the body at byte {start}" if field == "" else field, odd[0])


def _huge_number(body: bytes) -> str | None:
    """The number that is too large for the decoder, which does not tell where it is."""
    if len(body) > MAX_BYTES_BEFORE:
        return None
    parts = _without_escapes(body).split(b'"', MAX_QUOTES)
    if len(parts) > MAX_QUOTES or sum(map(len, parts[::2])) > MAX_OUTSIDE_BYTES:
        return None
    for index in range(0, len(parts), 2):
        for found in _HUGE.finditer(parts[index]):
            if b"e" not in found[0].lower() or math.isinf(float(found[0])):
                return _not_finite(_path([*parts[:index], parts[index][: found.start()]]), found[0])
    return None


def _not_finite(field: str | None, number: bytes) -> str | None:
    if field is None:
        return None
    shown = number[:MAX_SHOWN_CHARACTERS].decode()
    return f"{field[:MAX_SHOWN_CHARACTERS]}: expected a finite number, got {shown}"


def _path(before: Sequence[bytes]) -> str | None:
    """The place of the value that would follow, as a dotted path; None where no value can follow.

    before: what stands before it, split at the quotation marks: every second part is a string.
    """
    outside = b"".join(before[::2])
    if len(outside) > MAX_OUTSIDE_BYTES:
        return _last_name(before)
    opened = outside.translate(None, _BUT_BRACKETS)
    for _ in range(MAX_PASSES):
        opened = opened.replace(b"{}", b"").replace(b"[]", b"")
    if opened.translate(None, b"{["):
        return _last_name(before)
    short = [part if index % 2 == 0 or len(part) <= MAX_NAME_BYTES else b"..." for index, part in enumerate(before)]
    try:
        value: Any = _decode(b'%b"\\u0000"%b' % (b'"'.join(short), opened[::-1].translate(_CLOSING)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    steps: list[str] = []
    for _ in opened:
        if isinstance(value, dict) and value:
            name = next(reversed(value))
            value = value[name]
            steps.append(f".{name}")
        elif isinstance(value, list) and value:
            steps.append(f"[{len(value) - 1}]")
            value = value[-1]
    if value != _HERE:
        # A name that comes a second time has its first one's place.
        return _last_name(before)
    return "".join(steps).removeprefix(".") or "the body"


def _last_name(before: Sequence[bytes]) -> str:
    """The name that stands last before the value: its own, or that of a list it is in, or of a member before it.

    Empty where there is none near.
    """
    for index in range(len(before) - 1, 0, -2):
        if before[index][:16].lstrip().startswith(b":") and len(before[index - 1]) <= MAX_NAME_BYTES:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                return str(_decode(b'"%b"' % before[index - 1]))
    return ""


def _without_escapes(body: bytes) -> bytes:
    """Without the escapes that hide where strings end. They may be parts of names, which are shown without them."""
    return body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body


def _not_utf8(body: bytes) -> str | None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    read = 0
    for piece in pieces_of(body):
        read += len(piece)
        try:
            decoder.decode(piece, read == len(body))
        except UnicodeDecodeError as error:
            # Its object begins with what the piece before has left of a character.
            return f"the body is not UTF-8: {error.reason} at byte {read - len(error.object) + error.start}"
    return None
