"""Marks in a text that comes in pieces: where one begins, and what may still become one."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["find_mark", "may_begin"]


def find_mark(text: str, marks: Iterable[str], start: int = 0) -> tuple[int, str] | None:
    """Where in `text`, from `start` on, the first of the marks stands, and which it is: the longest of several."""
    found = [(at, -len(mark), mark) for mark in marks if (at := text.find(mark, start)) >= 0]
    if not found:
        return None
    at, _, mark = min(found)
    return at, mark


def may_begin(text: str, marks: Iterable[str]) -> int:
    """How many characters at the end of `text` may be the beginning of a mark."""
    return max(
        (size for mark in marks for size in range(1, min(len(mark), len(text) + 1)) if text.endswith(mark[:size])),
        default=0,
    )
