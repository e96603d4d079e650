"""One sequence of a generation, which is one request to vLLM's core: from the core's outputs to events, top to bottom.

    EngineCoreOutput --grow, end--> ids, log-probabilities --_read--> Detokenizer --> text, Tokens --split--> Delta
    Prompt (core_outputs.py) --SequenceGroup.begin--> Prefill, Prefill, ..., Started

vLLM is asked for token ids only: text, stop strings and each token's exact piece are made here, once.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...events import Delta, Finish, FinishReason, Token
from ...text.answers.parsers import Splitter
from ...text.answers.splitting import AnswerSplitter, split, split_whole
from ...text.answers.text_splitter import TextSplitter
from ...text.detokenizer import Detokenizer, StopFinder
from ..core_outputs import chosen, entries
from .group import SequenceGroup
from .likeliest import finite, likeliest
from .pace import Pace

__all__ = ["GuidedSequence", "OutputSequence"]

WHOLE = Pace(256)
"""Of an answer that is not streamed: so many tokens at once are cheaper than one by one."""


class OutputSequence:
    """One sequence."""

    __slots__ = (
        "_all_ids",
        "_by_ids",
        "_by_text",
        "_by_whole",
        "_cumulative",
        "_due",
        "_ids",
        "_logprobs",
        "_next",
        "_pace",
        "_plain",
        "_splitter",
        "_stream",
        "_wanted",
        "group",
        "index",
        "name",
        "searched",
        "text",
    )  # fmt: skip

    def __init__(
        self, name: str, index: int, group: SequenceGroup, splitter: AnswerSplitter | None, pace: Pace
    ) -> None:
        """`name` is its vLLM request's. A stream is sent, and its text made, at this pace."""
        generation, sampling = group.generation, group.sampling
        self.name = name
        self.index = index
        self.group = group
        decode = group.tokenizer.stream(
            group.prompt_ids, sampling.skip_special_tokens, sampling.spaces_between_special_tokens
        )
        self._stream = stream = generation.stream
        plain = stream and not generation.tokens and not sampling.stop and sampling.logprobs is None
        self._by_text = splitter if isinstance(splitter, TextSplitter) else None
        """What takes the answer apart by its text alone."""
        self._by_ids = splitter if plain and isinstance(splitter, Splitter) else None
        """What takes apart a stream of which nothing else is wanted: tokens are kept of its end alone."""
        by_tokens = False
        if not (splitter is None or isinstance(splitter, TextSplitter)):
            by_tokens = stream or splitter.by_tokens
        kept = generation.tokens or (by_tokens and self._by_ids is None)
        self._by_whole = splitter is not self._by_text and not by_tokens
        """Whether the answer is taken apart at its end alone."""
        if by_tokens:
            group.weigh_kept()
        self.text = Detokenizer(decode, kept)
        if stops := sampling.stop:
            shown, least = sampling.include_stop, sampling.min_tokens
            self.text = StopFinder(decode, kept, stops=stops, include_stop=shown, min_tokens=least)
        self.searched = not self.text.endless
        """Whether each token's text is made at once, as it may end the sequence."""
        self._wanted = wanted = sampling.logprobs
        self._cumulative = None if wanted is None else 0.0
        """The sum of the tokens' log-probabilities."""
        self._splitter = splitter
        self._plain = plain and not kept
        """Whether it is a stream of which text alone is made."""
        self._pace = pace if stream else WHOLE
        self._due = 1 if stream else WHOLE.tokens
        """After how many tokens more text is made: of a stream the first token's at once."""
        self._next = 0.0
        """Before when no more text is made, as Pace.soon."""
        self._ids: list[int] = []
        """Tokens of which no text has been made."""
        self._logprobs: list[Any] = []
        """Of each of them what is wanted: a number, or what is known of it and the likeliest by token id."""
        self._all_ids: list[int] = []
        """All tokens of an answer that is not streamed and is taken apart."""

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended it."""
        return self.text.stop is not None

    def grow(self, output: Any) -> Delta | None:
        """Takes what an output brings of a sequence that goes on, and returns what is to be sent now.

        Raises ParameterError where the answer becomes too long, and what parsers raise.
        """
        if self._plain:
            # Most outputs of a stream.
            ids = output.new_token_ids
            self._ids = self._ids + ids if self._ids else ids
            self._due -= len(ids)
            return None if self._due > 0 or self._pace.soon < self._next else self._told_text()
        self._take(output)
        pace = self._pace
        waits = self._due > 0 or pace.soon < self._next
        if waits and not self.searched:
            return None
        self._read()
        return None if waits or self.stopped else self._told()

    @property
    def held_until(self) -> float | None:
        """Until when its pace alone holds back what there is of a stream, as Pace.now; None: it holds nothing back."""
        return self._next if self._stream and self._due <= 0 else None

    def overdue(self) -> Delta | None:
        """What is to be sent of that then; raises as `grow`."""
        if self._plain:
            return self._told_text()
        self._read()
        return self._told()

    def _told_text(self) -> Delta | None:
        """Of a stream of which text alone is made."""
        pace = self._pace
        ids, self._due, self._ids = self._ids, pace.tokens, []
        self._next = pace.now + pace.gather_s
        if self._by_ids is not None:
            return self._taken_apart(self._by_ids, ids)
        text = self.text.text_of(ids)
        if not text:
            return None
        delta = Delta(self.index, text)
        splitter = self._by_text
        if splitter is None or splitter.passes(text):
            return delta
        delta = split(splitter, delta, shown=False)
        return delta if delta.text or delta.calls else None

    def _told(self) -> Delta | None:
        pace = self._pace
        self._due, self._next = pace.tokens, pace.now + pace.gather_s
        if not self._stream:
            return None
        delta = split(self._splitter, Delta(self.index, *self.text.take()), shown=self.group.generation.tokens)
        return delta if delta.text or delta.tokens or delta.reasoning or delta.calls else None

    def _taken_apart(self, splitter: Splitter, ids: list[int]) -> Delta | None:
        """What is to be sent of new tokens, by a splitter that gets each of them."""
        index, text_of = self.index, self.text.text_of
        if len(ids) == 1:
            # Most outputs of a stream.
            text = text_of(ids)
            lane = splitter.goes_on(ids[0], text)
            if lane:
                if not (text := splitter.next_text):
                    return None
                return Delta(index, text) if lane == "text" else Delta(index, "", reasoning=text)
            tokens: tuple[Token, ...] = (Token(ids[0], text),)
        else:
            tokens = tuple(Token(token_id, text_of([token_id])) for token_id in ids)
        delta = split(splitter, Delta(index, "", tokens), shown=False)
        return delta if delta.text or delta.reasoning or delta.calls else None

    def end(self, output: Any, reason: str | None) -> Delta:
        """The last of it: by its last output, or None for `reason` where it is `stopped`. Raises as `grow`."""
        if reason is not None:
            self._take(output)
            self._read(reason)
        # vLLM's own form: lists, numbers, strings.
        transfer = msgspec.to_builtins(output.kv_transfer_params, str_keys=True)
        return self._last(reason, output.stop_reason, last=not self.group.running, kv_transfer_params=transfer)

    def whole(self, ids: list[int], logprobs: list[Any], reason: str, ended: str, **finish: Any) -> Delta:
        """An answer that is known as a whole: `logprobs` are of each token what is known of it and the likeliest.

        `reason` is vLLM's word for how its last token ended it, `ended` for what is told where no stop string is found
        in its text. `finish` goes into its Finish.
        """
        self._ids, self._all_ids, self._logprobs = ids, ids, logprobs
        self._read(reason)
        return self._last(ended, ids[-1], **finish)

    def _take(self, output: Any) -> None:
        ids = output.new_token_ids
        if not self._stream:
            self.group.count(len(ids))
            if self._by_whole:
                self._all_ids += ids
        self._due -= len(ids)
        self._ids += ids
        wanted = self._wanted
        if wanted is not None and (rows := output.new_logprobs) is not None:
            self._logprobs += entries(rows, wanted) if wanted else chosen(rows)

    def _read(self, reason: str | None = None) -> None:
        """Makes text of the tokens that there are; `reason` is why the sequence ended, as vLLM names it: stop, length,
        abort, error, repetition.
        """
        (ids, self._ids), (logprobs, self._logprobs) = (self._ids, []), (self._logprobs, [])
        # The token that ends a sequence (end of sequence, a stop token id) has no text, unless stops are to be shown.
        hidden_at = len(ids) if reason == "stop" and not self.group.sampling.include_stop else 0
        text, wanted = self.text, self._wanted
        if reason is not None and self._by_ids is not None:
            text.keep()
        if wanted is None and text.plain:
            # Nothing is wanted but text: any number of tokens at once.
            text.extend(ids[:-1] if hidden_at else ids)
            if hidden_at:
                text.push(ids[-1], hidden=True)
            return
        tokenizer, push = self.group.tokenizer, text.push
        special_ids = tokenizer.special_ids
        if self._cumulative is None or wanted is None:
            for position, token_id in enumerate(ids, 1):
                if push(token_id, special=token_id in special_ids, hidden=position == hidden_at):
                    return
            return
        with_bytes = self.group.generation.token_bytes
        for position, (token_id, entry) in enumerate(zip(ids, logprobs, strict=True), 1):
            logprob = finite(entry if type(entry) is float else entry[token_id].logprob)
            self._cumulative += logprob
            special = token_id in special_ids
            if wanted == 0 and not with_bytes:
                stopped = push(token_id, logprob, special, hidden=position == hidden_at)
            else:
                top = likeliest(entry, wanted, tokenizer, with_bytes)
                raw = tokenizer.raw(token_id) if with_bytes else b""
                stopped = push(token_id, logprob, special, top, raw, hidden=position == hidden_at)
            if stopped:
                return

    def _last(self, reason: str | None, stop: str | int | None, **finish: Any) -> Delta:
        """What is left, with the ending: `reason` and `stop` are vLLM's, `finish` goes into the Finish."""
        text, tokens = self.text.finish()
        ended, stop = self._ending(reason, stop)
        count = self.text.count
        delta = Delta(self.index, text, tokens, Finish(ended, stop, count, self._cumulative, **finish))
        splitter = self._splitter
        if isinstance(splitter, Splitter) and self._by_whole:
            return split_whole(splitter, delta, self._all_ids[:count])
        return split(splitter, delta, shown=self.group.generation.tokens)

    def _ending(self, reason: str | None, stop: str | int | None) -> tuple[FinishReason, str | int | None]:
        """Why it ended, and at what. A stop string takes precedence over what vLLM saw in the same step."""
        if self.text.stop is not None:
            return "stop", self.text.stop
        if reason == "stop":
            # A second end-of-sequence id of the model's generation_config is reported like a stop token id.
            return ("eos", None) if stop is None or stop in self.group.ends else ("stop", stop)
        if reason == "length":
            return "length", None
        # vLLM can be told to end a sequence that repeats itself.
        return ("stop", None) if reason == "repetition" else ("abort", None)


class GuidedSequence(OutputSequence):
    """One that keeps its tokens, to find out why the core gives it up."""

    __slots__ = ("taken",)

    def __init__(
        self, name: str, index: int, group: SequenceGroup, splitter: AnswerSplitter | None, pace: Pace
    ) -> None:
        """As an OutputSequence."""
        super().__init__(name, index, group, splitter, pace)
        self.taken: list[int] = []
        """All tokens so far, which its guide has taken."""

    def grow(self, output: Any) -> Delta | None:
        """As an OutputSequence's."""
        self.taken += output.new_token_ids
        return OutputSequence.grow(self, output)
