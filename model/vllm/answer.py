"""One sequence of a generation, which is one vLLM request: what the core's outputs make of it.

EngineCoreOutput --grow, end--> ids, log-probabilities --text/outputs.py--> text, tokens --text/parsers.py--> Delta
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..events import Delta, Finish
from ..text.outputs import OutputReader, SequenceText
from ..text.parsers import Splitter, split, split_whole
from ..text.sequences import Group
from .core_outputs import chosen, entries
from .request.guide_faults import Guide

__all__ = ["Answer", "GuidedAnswer"]

WHOLE_INTERVAL = 256
"""Tokens of which an answer that is not streamed makes its text at once: cheaper than one by one."""


@dataclass(slots=True)
class Answer:
    """One sequence."""

    name: str
    index: int
    group: Group
    reader: OutputReader
    text: SequenceText
    splitter: Splitter | None
    guide: Guide | None
    interval: int
    """After how many tokens its text is made, and sent where it is streamed."""
    searched: bool = False
    """Whether each token's text is made at once, as it may end the sequence."""
    plain: bool = False
    """Whether it is a stream of text alone."""
    due: int = 1
    """After how many tokens more: the first one of a stream is sent at once."""
    ids: list[int] = field(default_factory=list[int])
    """Tokens of which no text has been made."""
    logprobs: list[Any] = field(default_factory=list[Any])
    """Of each of them what is wanted."""
    all_ids: list[int] = field(default_factory=list[int])
    """All tokens of an answer that is not streamed and is taken apart."""

    def __post_init__(self) -> None:
        self.searched = not self.text.stream.endless
        self.plain = self.group.stream and self.text.plain and self.splitter is None
        if not self.group.stream:
            self.due = self.interval = WHOLE_INTERVAL

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended it."""
        return self.text.stream.stop is not None

    def grow(self, output: Any) -> Delta | None:
        """Takes what an output brings of a sequence that goes on, and returns what is to be sent now.

        Raises ParameterError where the answer becomes too long, and what parsers raise.
        """
        if self.plain:
            # Most outputs of a stream.
            ids = output.new_token_ids
            self.ids = self.ids + ids if self.ids else ids
            self.due -= len(ids)
            if self.due > 0:
                return None
            text = self.text.stream.text_of(self.ids)
            self.due, self.ids = self.interval, []
            return Delta(self.index, text) if text else None
        self._take(output)
        if self.due > 0 and not self.searched:
            return None
        self._read()
        if self.due > 0 or self.stopped:
            return None
        self.due = self.interval
        if not self.group.stream:
            return None
        delta = split(self.splitter, Delta(self.index, *self.text.stream.take()), shown=self.group.tokens)
        return delta if delta.text or delta.tokens or delta.reasoning or delta.calls else None

    def end(self, output: Any, reason: str | None) -> Delta:
        """The last of it: by its last output, or None for `reason` where it is `stopped`. Raises as `grow`."""
        if reason is not None:
            self._take(output)
            self._read(reason)
        stream = self.text.stream
        text, tokens = stream.finish()
        ended, stop = self.reader.finish_reason(stream.stop, reason, output.stop_reason)
        # vLLM's own form: lists, numbers, strings.
        transfer = msgspec.to_builtins(output.kv_transfer_params, str_keys=True)
        last, cumulative = not self.group.running, self.text.cumulative
        finish = Finish(ended, stop, stream.count, cumulative, last=last, kv_transfer_params=transfer)
        delta = Delta(self.index, text, tokens, finish)
        if self.group.stream:
            return split(self.splitter, delta, shown=self.group.tokens)
        return split_whole(self.splitter, delta, self.all_ids[: stream.count])

    def _take(self, output: Any) -> None:
        ids = output.new_token_ids
        if not self.group.stream:
            self.group.grow(len(ids))
            if self.splitter is not None:
                self.all_ids += ids
        self.due -= len(ids)
        self.ids += ids
        wanted = self.text.logprobs
        if wanted is not None and (rows := output.new_logprobs) is not None:
            self.logprobs += entries(rows, wanted) if wanted else chosen(rows)

    def _read(self, reason: str | None = None) -> None:
        """Makes text of what there is; `reason` is why it ended, if it has."""
        self.reader.read(self.text, self.ids, self.logprobs, reason)
        self.ids, self.logprobs = [], []


@dataclass(slots=True)
class GuidedAnswer(Answer):
    """One that keeps its tokens, to find out why the core gives it up."""

    taken: list[int] = field(default_factory=list[int])
    """All tokens so far, which its guide has taken."""

    def grow(self, output: Any) -> Delta | None:
        """As an Answer's."""
        self.taken += output.new_token_ids
        return Answer.grow(self, output)
