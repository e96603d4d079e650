"""A prompt's tokens in pieces, so that neither making nor sending those of a long prompt holds up other requests.

the backend --Prefill, Prefill, ..., Started with the last piece--> whole --Started with all of them--> sink
"""

from __future__ import annotations

from itertools import chain

import msgspec

from ..engine import Sink
from ..events import EngineEvent, Prefill, Started
from ..generation import Generation

__all__ = ["PIECE", "joined", "whole"]

PIECE = 1024
"""Tokens in a piece, the likely ones beside the prompt's own included: some milliseconds of work."""


def whole(generation: Generation, sink: Sink) -> Sink:
    """What the engine is to report to, so that `sink` gets the prompt in one piece."""
    return sink if generation.sampling.prompt_logprobs is None else _Whole(sink)


class _Whole:
    """A sink that holds the pieces until the last one comes."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._pieces: list[Prefill] = []

    def __call__(self, event: EngineEvent) -> None:
        if isinstance(event, Prefill):
            self._pieces.append(event)
            return
        if isinstance(event, Started):
            event, self._pieces = joined(self._pieces, event), []
        self._sink(event)


def joined(pieces: list[Prefill], started: Started) -> Started:
    """`started` with the pieces that came before it."""
    if not pieces:
        return started
    tokens = chain.from_iterable(piece.tokens for piece in pieces)
    ranks = chain.from_iterable(piece.ranks for piece in pieces)
    return msgspec.structs.replace(started, prefill=(*tokens, *started.prefill), ranks=(*ranks, *started.ranks))
