"""What an engine brings of a sequence, read into tokens, text and an ending.

Prompt -> OutputReader.started -> Prefill, Prefill, ..., Started
ids, log-probabilities -> OutputReader.read -> Detokenizer -> text, tokens;  OutputReader.finish_reason
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ..events import LOWEST_LOGPROB, FinishReason, Prefill, Started, Token, TopToken
from ..generation import Sampling
from .detokenizer import Detokenizer, StopFinder
from .prompt_pieces import PIECE
from .tokenizer import Tokenizer

__all__ = ["OutputReader", "Prompt", "SequenceText"]


class Prompt(NamedTuple):
    """What an engine tells of a request's prompt."""

    logprobs: Iterable[Any] = ()
    """Of each token, by token id, what is known of it and of the likeliest, with `logprob` and `rank`; None for the
    first one. May be made as it is read, once; an empty tuple where it is not wanted."""
    cached_tokens: int = 0


class SequenceText:
    """One sequence's text in the making, and what is wanted of its tokens."""

    __slots__ = ("cumulative", "include_stop", "logprobs", "plain", "stream", "token_bytes")

    def __init__(self, stream: Detokenizer, sampling: Sampling, token_bytes: bool) -> None:
        self.stream = stream
        self.include_stop = sampling.include_stop
        self.logprobs = sampling.logprobs
        self.token_bytes = token_bytes
        self.plain = sampling.logprobs is None and stream.plain
        """Whether nothing is wanted but text, so that any number of tokens can be read at once."""
        self.cumulative: float | None = None if sampling.logprobs is None else 0.0
        """The sum of the tokens' log-probabilities."""


class OutputReader:
    """Reads the outputs of one model."""

    def __init__(self, tokenizer: Tokenizer, eos_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._eos_ids = eos_ids

    def text(self, sampling: Sampling, prompt_ids: Sequence[int], keep_tokens: bool, token_bytes: bool) -> SequenceText:
        """An empty text that follows `prompt_ids`."""
        decode = self._tokenizer.stream(
            prompt_ids, sampling.skip_special_tokens, sampling.spaces_between_special_tokens
        )
        if sampling.stop:
            stop, shown, least = sampling.stop, sampling.include_stop, sampling.min_tokens
            found = StopFinder(decode, keep_tokens, stops=stop, include_stop=shown, min_tokens=least)
            return SequenceText(found, sampling, token_bytes)
        return SequenceText(Detokenizer(decode, keep_tokens), sampling, token_bytes)

    def prompt_text(self, prompt_ids: Sequence[int]) -> str:
        """A prompt as text, special tokens included: the texts of `Started.prefill`, joined."""
        decode = self._tokenizer.stream([], False, True)
        return "".join(decode(token_id) for token_id in prompt_ids)

    def started(
        self, prompt_ids: Sequence[int], prompt: Prompt, echo: bool, wanted: int
    ) -> Iterator[Prefill | Started]:
        """The events of a request's first output, made one by one: the prompt's tokens in pieces, each with the
        `wanted` most likely ones; the first token has no log-probability. `echo`: whether its text is wanted.
        """
        text = self.prompt_text(prompt_ids) if echo else ""
        decode = self._tokenizer.stream([], False, True)
        special_ids = self._tokenizer.special_ids
        tokens: list[Token] = []
        ranks: list[int | None] = []
        for token_id, entry in zip(prompt_ids if prompt.logprobs else (), prompt.logprobs, strict=True):
            if len(tokens) * (1 + wanted) >= PIECE:
                yield Prefill(tuple(tokens), tuple(ranks))
                tokens, ranks = [], []
            logprob = finite(entry[token_id].logprob) if entry else None
            top = self._top(entry, wanted) if entry else ()
            tokens.append(Token(token_id, decode(token_id), logprob, token_id in special_ids, top))
            ranks.append(entry[token_id].rank if entry else None)
        yield Started(len(prompt_ids), prompt.cached_tokens, tuple(tokens), text, tuple(ranks))

    def read(self, text: SequenceText, ids: list[int], logprobs: Sequence[Any] = (), reason: str | None = None) -> None:
        """Adds new tokens to the text.

        `logprobs` has of each its own log-probability where no more is wanted, else by token id what is known of it and
        of the likeliest, with `logprob` and `rank`. `reason` is why the sequence ended, as vLLM names it: stop, length,
        abort, error, repetition.
        """
        # The token that ends a sequence (end of sequence, a stop token id) has no text, unless stops are to be shown.
        hidden_at = len(ids) if reason == "stop" and not text.include_stop else 0
        if text.plain:
            text.stream.extend(ids[:-1] if hidden_at else ids)
            if hidden_at:
                text.stream.push(ids[-1], hidden=True)
            return
        push = text.stream.push
        special_ids = self._tokenizer.special_ids
        if text.logprobs is None or text.cumulative is None:
            for position, token_id in enumerate(ids, 1):
                if push(token_id, special=token_id in special_ids, hidden=position == hidden_at):
                    return
            return
        for position, (token_id, entry) in enumerate(zip(ids, logprobs, strict=True), 1):
            # A number where nothing else is wanted (chosen in model/vllm/core_outputs.py).
            logprob = finite(entry if type(entry) is float else entry[token_id].logprob)
            text.cumulative += logprob
            special = token_id in special_ids
            if text.logprobs == 0 and not text.token_bytes:
                stopped = push(token_id, logprob, special, hidden=position == hidden_at)
            else:
                top = self._top(entry, text.logprobs, text.token_bytes)
                raw = self._tokenizer.raw(token_id) if text.token_bytes else b""
                stopped = push(token_id, logprob, special, top, raw, hidden=position == hidden_at)
            if stopped:
                return

    def finish_reason(
        self, found: str | None, reason: str | None, stop: str | int | None
    ) -> tuple[FinishReason, str | int | None]:
        """Why a sequence ended, and at what. A stop string takes precedence over what vLLM saw in the same step."""
        if found is not None:
            return "stop", found
        if reason == "stop":
            # A second end-of-sequence id of the model's generation_config is reported like a stop token id.
            return ("eos", None) if stop is None or stop in self._eos_ids else ("stop", stop)
        if reason == "length":
            return "length", None
        # vLLM can be told to end a sequence that repeats itself.
        return ("stop", None) if reason == "repetition" else ("abort", None)

    def _top(self, entry: Any, wanted: int, token_bytes: bool = False) -> tuple[TopToken, ...]:
        """The `wanted` most likely tokens of a position; `entry` has what is known of each, by its id."""
        if not wanted:
            return ()
        best = sorted(entry.items(), key=lambda item: item[1].logprob, reverse=True)[:wanted]
        tokenizer = self._tokenizer
        return tuple(
            TopToken(
                token_id,
                tokenizer.piece(token_id),
                finite(logprob.logprob),
                tokenizer.raw(token_id) if token_bytes else b"",
                token_id in tokenizer.special_ids,
            )
            for token_id, logprob in best
        )


def finite(logprob: float) -> float:
    """JSON has no infinity: LOWEST_LOGPROB stands for it."""
    return logprob if math.isfinite(logprob) and logprob > LOWEST_LOGPROB else LOWEST_LOGPROB
