"""Marks in a text that comes in pieces: where one begins, what may still become one, and which tokens are none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["PlainTokens", "find_mark", "may_begin"]


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


BEGINNINGS = "<[{(|`\\\uff5c\u3010"
"""With what the marks of models' formats begin that are no tokens of their own, and what a parser reads otherwise than
it is written (vLLM's minicpmv)."""


class PlainTokens:
    """Tokens of one model that are words alone: in the midst of reasoning or of text they change nothing in how it is
    read.
    """

    def __init__(self, added: Mapping[str, int]) -> None:
        """`added`: the tokens that its tokenizer adds to the vocabulary, special ones among them, and their ids."""
        self._added = frozenset(added.values())
        first = {text[0] for text in added if text.strip()}
        self._beginnings = frozenset(BEGINNINGS) | {one for one in first if not one.isalnum()}
        self._known: dict[int, str] = {}
        """The texts with which tokens are such. A token has another where bytes of a character came before it."""

    def has(self, token_id: int, text: str) -> bool:
        """Whether a token of this text is one. White space at the end is none: parsers hold it back before a mark."""
        if self._known.get(token_id) == text:
            return True
        if not text or token_id in self._added or text[-1].isspace() or not self._beginnings.isdisjoint(text):
            return False
        self._known[token_id] = text
        return True

    def is_blank(self, token_id: int, text: str) -> bool:
        """Whether it would be one but for the white space at its end."""
        return text[-1:].isspace() and token_id not in self._added and self._beginnings.isdisjoint(text)
