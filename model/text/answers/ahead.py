"""What is told of a stream before vLLM's parser has read it: words in the midst of reasoning or of text.

A parser takes several times as long for a token as all else does. In the midst of reasoning or of text it is known what
it will make of words, so that it gets those together, once a mark may follow. What it then holds back, since a mark may
begin so, has been told already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from .text_marks import PlainTokens

__all__ = ["Ahead", "Lane"]

Lane = Literal["", "reasoning", "text"]
"""What a token belongs to; empty: that is not known."""
MOST_HELD = 256
"""Characters that a parser holds back at most: what marks begin with. What it has not said of more, it leaves out."""
MOST_BLANK = 8
"""Tokens of white space that wait for what comes after them."""


class Ahead:
    """How far one stream is ahead of its parser."""

    def __init__(self, plain: PlainTokens | None) -> None:
        """`plain`: tokens that change nothing in how an answer is read; None: none is known."""
        self._plain = plain
        self.lane: Lane = ""
        """What the parser has made of the last token, all of it: what it will make of the next plain one."""
        self._texts: list[str] = []
        self._ids: list[int] = []
        """Plain tokens that have been told, and that the parser has not been given yet."""
        self._blank: list[tuple[str, int]] = []
        """Tokens since then that end with white space: parsers leave it out before some marks."""
        self._due = ""
        """What the parser has been given of the last tokens and has not said yet, where that is known."""
        self._told_due = 0
        """How many characters of that, from its beginning on, have been told already."""

    def is_plain(self, token_id: int, text: str) -> bool:
        """Whether a token changes nothing in how the answer is read."""
        return self._plain is not None and self._plain.has(token_id, text)

    def take(self, token_id: int, text: str) -> str | None:
        """What is to be told once the next token has come, not the last; None: the parser is to read it."""
        plain = self._plain
        if plain is None:
            return None
        if plain.has(token_id, text):
            told = text
            if self._blank:
                told = "".join(said for said, _ in self._blank) + text
                for said, blank_id in self.waiting():
                    self._texts.append(said)
                    self._ids.append(blank_id)
            self._texts.append(text)
            self._ids.append(token_id)
            return told
        if len(self._blank) < MOST_BLANK and plain.is_blank(token_id, text):
            self._blank.append((text, token_id))
            return ""
        return None

    def waiting(self) -> list[tuple[str, int]]:
        """The tokens, as text and id, that the parser is to read before the next one; they wait no longer."""
        blank, self._blank = self._blank, []
        return blank

    def catch_up(self, parse: Callable[[str, list[int]], Any]) -> None:
        """Has the parser read what has been told without it; `parse` gives its message on a text and its tokens."""
        if not self._texts:
            return
        text, ids = "".join(self._texts), self._ids
        self._texts, self._ids = [], []
        said = _said(parse(text, ids))
        # It holds back what some of its marks begin with: '"' before '>', 'c' before 'all:'.
        self._due = text[len(said) :] if text.startswith(said) else ""
        self._told_due = len(self._due)

    def new(self, text: str, message: Any, *, calls: bool) -> tuple[str | None, str | None]:
        """Reasoning and text that are new in the parser's message on `text`; `calls`: it has calls, too."""
        reasoning, content = (None, None) if message is None else (message.reasoning, message.content)
        fed, told, said = self._due + text, self._due[: self._told_due], _said(message)
        self._due, self._told_due = "", 0
        if not calls and not (reasoning and content):
            if fed.startswith(said) and len(fed) - len(said) <= MOST_HELD:
                self._due = fed[len(said) :]
                self._told_due = max(len(told) - len(said), 0)
            # Or what it had not said was a mark.
            if text and said in (fed, text) and not self._due:
                self.lane = "reasoning" if reasoning else "text"
        if told:
            if reasoning:
                reasoning = _rest_of(reasoning, told)
            elif content:
                content = _rest_of(content, told)
        return reasoning, content


def _said(message: Any) -> str:
    """The reasoning or else the text of a message of vLLM's parsers."""
    return "" if message is None else message.reasoning or message.content or ""


def _rest_of(said: str, told: str) -> str:
    """What is new in what a parser says, where it begins with what has been told."""
    if said.startswith(told):
        return said[len(told) :]
    return "" if told.startswith(said) else said
