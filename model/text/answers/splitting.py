"""Answers as the engine has them, taken apart.

Delta --split--> Delta, of a stream;  Delta, ids --split_whole--> Delta, of all of an answer
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ...events import Delta, Token
from .parsers import Splitter
from .part import Part, TokenSplitter
from .text_splitter import TextSplitter

__all__ = ["AnswerSplitter", "split", "split_whole"]

AnswerSplitter = TokenSplitter | TextSplitter
"""What takes one sequence's answer apart."""

CUT = ("length", "abort")
"""How an answer ends that the model has not ended."""


def split(splitter: AnswerSplitter | None, delta: Delta, *, shown: bool) -> Delta:
    """`delta` of a stream, taken apart where there is a splitter; its tokens only where they are `shown`."""
    if splitter is None:
        return delta
    ended, cut = delta.finish is not None, _is_cut(delta)
    if isinstance(splitter, TextSplitter):
        part = splitter.feed(delta.tokens, ended=ended, cut=cut, text=delta.text)
    else:
        part = splitter.feed(delta.tokens, ended=ended, cut=cut)
    return _with(part, delta, splitter, part.tokens if shown else ())


def split_whole(splitter: Splitter, delta: Delta, ids: list[int]) -> Delta:
    """`delta`, all of an answer that is not streamed, of these tokens, taken apart."""
    part = splitter.whole(delta.text, ids, cut=_is_cut(delta))
    return _with(part, delta, splitter, delta.tokens)


def _is_cut(delta: Delta) -> bool:
    return delta.finish is not None and delta.finish.reason in CUT


def _with(part: Part, delta: Delta, splitter: AnswerSplitter, tokens: Iterable[Token]) -> Delta:
    """`part` of an answer in place of the text of `delta`, with its `tokens`."""
    finish = delta.finish
    if finish is not None:
        finish = replace(finish, reasoning_tokens=splitter.reasoning_tokens, dropped_characters=splitter.dropped)
    return Delta(delta.index, part.text, tuple(tokens), finish, part.reasoning, tuple(part.calls))
