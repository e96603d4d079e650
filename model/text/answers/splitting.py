"""Answers as the engine has them, taken apart.

Delta --split--> Delta, of a stream;  Delta, ids --split_whole--> Delta, of all of an answer
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ...events import Delta, Token
from .parsers import Splitter
from .part import Part, TokenSplitter

__all__ = ["split", "split_whole"]

CUT = ("length", "abort")
"""How an answer ends that the model has not ended."""


def split(splitter: TokenSplitter | None, delta: Delta, *, shown: bool) -> Delta:
    """`delta` of a stream, taken apart where there is a splitter; its tokens only where they are `shown`."""
    if splitter is None:
        return delta
    finish = delta.finish
    part = splitter.feed(delta.tokens, ended=finish is not None, cut=finish is not None and finish.reason in CUT)
    return _with(part, delta, splitter, part.tokens if shown else ())


def split_whole(splitter: Splitter | None, delta: Delta, ids: list[int]) -> Delta:
    """`delta`, all of an answer that is not streamed, of these tokens; taken apart where there is a splitter."""
    finish = delta.finish
    if splitter is None or finish is None:
        return delta
    part = splitter.whole(delta.text, ids, cut=finish.reason in CUT)
    return _with(part, delta, splitter, delta.tokens)


def _with(part: Part, delta: Delta, splitter: TokenSplitter, tokens: Iterable[Token]) -> Delta:
    """`part` of an answer in place of the text of `delta`, with its `tokens`."""
    finish = delta.finish
    if finish is not None:
        finish = replace(finish, reasoning_tokens=splitter.reasoning_tokens, dropped_characters=splitter.dropped)
    return Delta(delta.index, part.text, tuple(tokens), finish, part.reasoning, tuple(part.calls))
