"""How much a body may be made of, checked before anything is built of it.

A byte or two of JSON become an object of a hundred bytes and more: 70 MB of tiny messages are two million of them,
seconds of work. What is counted is what JSON parts values by, outside of strings. A large body is read on a thread
beside others, so all that looks through it does so piece by piece: between two pieces the others go on.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...model.errors import ParameterError

__all__ = ["CONTAINERS", "LARGE", "PIECE", "STRINGS", "VALUES", "check_body", "pieces_of"]

LARGE = 1 << 18
"""Bytes of a body that is not read on a thread that serves others, which it would keep for too long."""
CONTAINERS = 1 << 18
"""Objects and arrays."""
STRINGS = 1 << 18
"""Keys among them, which are the slowest: a million different ones take 0.4 s."""
VALUES = 1 << 20
"""Commas, which is what a list of token ids has."""
PIECE = 1 << 20
"""Bytes that are looked through at once: a millisecond or so."""


def check_body(body: bytes) -> None:
    """Raises ParameterError for a body, of more than CONTAINERS bytes, that has too many values.

    One that is no JSON may pass.
    """
    containers = values = quotes = 0
    for piece in pieces_of(body):
        containers += _count(piece, b"{[")
        values += _count(piece, b",")
        quotes += _count(piece, b'"')
        if containers > CONTAINERS or values > VALUES or quotes > 2 * STRINGS:
            # Texts may have any number of these characters, so that now strings have to be separated from the rest.
            _check_outside_strings(body)
            return


def pieces_of(body: bytes) -> Iterator[bytes]:
    """All of it, piece by piece."""
    for start in range(0, len(body), PIECE):
        yield body[start : start + PIECE]


def _check_outside_strings(body: bytes) -> None:
    quotes = containers = values = read = 0
    backslash = b""
    """The last one of an odd number that a piece ends with."""
    for part in pieces_of(body):
        read += len(part)
        piece = (backslash + part).replace(b"\\\\", b"")
        backslash = b"\\" if piece.endswith(b"\\") else b""
        split = piece.removesuffix(b"\\").replace(b'\\"', b"").split(b'"')
        outside = b"".join(split[quotes % 2 :: 2])
        quotes += len(split) - 1
        containers += _count(outside, b"{[")
        values += _count(outside, b",")
        where = "" if read == len(body) else f" in its first {read} bytes"
        _check("strings", quotes // 2, STRINGS, where)
        _check("objects and arrays", containers, CONTAINERS, where)
        _check("values", values, VALUES, where)


def _count(piece: bytes, characters: bytes) -> int:
    """How many of these there are; unlike `bytes.count` no slower where there are many."""
    return len(piece) - len(piece.translate(None, characters))


def _check(what: str, count: int, limit: int, where: str) -> None:
    if count > limit:
        raise ParameterError(f"the body: expected at most {limit} {what}, got {count}{where}")
