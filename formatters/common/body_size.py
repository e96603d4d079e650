"""How much a body may be made of, checked before anything is built of it.

A byte or two of JSON become an object of a hundred bytes and more: 70 MB of tiny messages are two million of them,
seconds of work on the thread that serves everybody. What is counted is what JSON parts values by, outside of strings.
"""

from __future__ import annotations

from ...model.errors import ParameterError

__all__ = ["CONTAINERS", "STRINGS", "VALUES", "check_body"]

CONTAINERS = 1 << 18
"""Objects and arrays."""
STRINGS = 1 << 20
"""Keys among them."""
VALUES = 1 << 21
"""Commas, which is what a list of token ids has."""


def check_body(body: bytes) -> None:
    """Raises ParameterError for a body of too many values. One that is no JSON may pass."""
    if len(body) <= CONTAINERS:
        return
    if _count(body, b"{[") <= CONTAINERS and _count(body, b",") <= VALUES:
        return
    # Texts may have any number of these characters, so that now strings have to be separated from the rest.
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body
    _check("strings", _count(bare, b'"') // 2, STRINGS)
    outside = b"".join(bare.split(b'"')[::2])
    _check("objects and arrays", _count(outside, b"{["), CONTAINERS)
    _check("values", _count(outside, b","), VALUES)


def _count(body: bytes, characters: bytes) -> int:
    """How many of these there are; unlike `bytes.count` no slower where there are many."""
    return len(body) - len(body.translate(None, characters))


def _check(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise ParameterError(f"the body: expected at most {limit} {what}, got {count}")
