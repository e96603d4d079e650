"""What an engine reports of a running generation.

    Rendered? Prefill* Started?  Delta*  with the last Delta of each sequence carrying its Finish, or
    Started   Delta     of Generation.tokenize: the Delta is empty but for its Finish, `length`
    Failed    at any time instead of what was still to come; always the last event

How many tokens a Delta holds is an accident of timing: formatters must give the same answer for any split. The types
are msgspec structs in array form because they cross a process boundary once a token.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .errors import ErrorMessage

__all__ = [
    "CallDelta", "Delta", "EngineEvent", "Event", "Failed", "Finish", "FinishReason", "Prefill", "Recording",
    "Rendered", "Started", "Token", "TopToken",
]  # fmt: skip

FinishReason = Literal["eos", "stop", "length", "abort", "content_filter"]
"""eos: the model's own end. stop: a stop string or stop token id. length: max_tokens or the context. abort: cut off.
content_filter: the user's filter flagged what came next; engines do not give it."""

LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot carry (docs/decisions.md: Numbers)."""


class TopToken(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One of the most likely tokens at a position."""

    id: int
    text: str
    logprob: float
    raw: bytes = b""
    """The token's own bytes, where Generation.token_bytes asked for them; exact for a part of a character."""
    special: bool = False


class Token(msgspec.Struct, array_like=True, frozen=True, omit_defaults=True):
    """A token of the prompt or of the answer. The texts of a sequence's tokens, joined, are its text."""

    id: int
    text: str
    logprob: float | None = None
    """Finite (at least LOWEST_LOGPROB); None where it was not asked for, and for a prompt's first token."""
    special: bool = False
    top: tuple[TopToken, ...] = ()
    """As many as Sampling.logprobs asked for, most likely first."""
    raw: bytes = b""
    """The token's own bytes, where Generation.token_bytes and log-probabilities were asked for; empty otherwise."""


class CallDelta(msgspec.Struct, array_like=True, frozen=True, omit_defaults=True):
    """What is new of a tool call. A call's first delta has its id and name; its arguments, joined, are JSON."""

    index: int
    """Which of the answer's calls."""
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class Finish(msgspec.Struct, array_like=True, frozen=True, omit_defaults=True):
    """How a sequence ended."""

    reason: FinishReason
    stop: str | int | None = None
    """The stop string or stop token id that matched."""
    generated_tokens: int = 0
    cumulative_logprob: float | None = None
    """The sum over the sequence's tokens; None without logprobs."""
    reasoning_tokens: int = 0
    """How many of the tokens belong to the reasoning."""
    last: bool = True
    """Whether nothing more comes of this request (False while other sequences of it run)."""
    discarded_tokens: int = 0
    """Generated in sequences that are not part of the response (Sampling.best_of); reported with the last finish."""
    discarded_reasoning_tokens: int = 0
    """How many of these belong to reasoning."""
    kv_transfer_params: dict[str, Any] | None = None
    """What the connector reports of the sequence's KV cache (vLLM's kv_transfer_params): JSON."""
    dropped_characters: int = 0
    """How much of the model's text its parsers left out of the answer: a call that they could not read, say."""


class Rendered(msgspec.Struct, array_like=True, frozen=True, tag="r"):
    """A generation that is held back (Generation.held) could be started. Whoever held it back gets this, no encoder."""

    text: str
    """The prompt as the model is to get it: what the chat template made, or the text of its token ids."""


class Prefill(msgspec.Struct, array_like=True, frozen=True, tag="p"):
    """Tokens of a long prompt that come before those of Started.prefill. Encoders get all of them with Started
    (text/prompt_pieces.py).
    """

    tokens: tuple[Token, ...]
    ranks: tuple[int | None, ...]
    """As Started.ranks."""


class Recording(msgspec.Struct, array_like=True, frozen=True, omit_defaults=True):
    """What is known of audio that is to be written down (Generation.transcription)."""

    seconds: float
    """How long it lasts."""
    starts: tuple[float, ...]
    """Where each piece of it begins, in seconds: piece i is sequence i."""
    language: str = ""
    """What is spoken, as the request says or the model has found out; empty: nobody knows."""
    spaced: bool = True
    """Whether a blank stands between the texts of two pieces."""
    audio_tokens: int | None = None
    """What the model counts the audio as; None: it does not say."""
    first_time: int | None = None
    """The id of the token that is the beginning of a piece, where Transcription.timestamps asked for them: each that
    follows is 0.02 seconds later."""


class Started(msgspec.Struct, array_like=True, frozen=True, tag="s", omit_defaults=True):
    """The prompt has been processed. Comes once, before the first Delta."""

    prompt_tokens: int
    cached_tokens: int = 0
    """How many of them came from the prefix cache."""
    prefill: tuple[Token, ...] = ()
    """The prompt's tokens, where Sampling.prompt_logprobs asked for them; of Generation.tokenize where `tokens` did,
    each with its name in the vocabulary for a text."""
    text: str = ""
    """The prompt as text, special tokens included, where Generation.echo asked for it."""
    ranks: tuple[int | None, ...] = ()
    """Of each token of `prefill` among the whole vocabulary, 1 being the likeliest; None for the first. Empty where the
    engine does not know them."""
    context: int = 0
    """Of Generation.tokenize: the longest prompt plus answer (EngineInfo.context), in tokens."""
    prompt_ids: tuple[int, ...] = ()
    """The prompt's tokens, where Generation.prompt_ids asked for them."""
    recording: Recording | None = None
    """Of Generation.transcription."""
    decoding: float = 0.0
    """Seconds that decoding its media took."""


class Delta(msgspec.Struct, array_like=True, frozen=True, tag="d", omit_defaults=True):
    """What is new of one sequence."""

    index: int
    """Which of the n sequences."""
    text: str
    tokens: tuple[Token, ...] = ()
    """The new tokens, where Generation.tokens asked for them. Their texts joined are `text`, unless the answer to a
    conversation is split: then they are all of the tokens, those of reasoning and calls too."""
    finish: Finish | None = None
    reasoning: str = ""
    """What is new of the reasoning, which is no part of `text`."""
    calls: tuple[CallDelta, ...] = ()
    """What is new of tool calls, which are no part of `text`."""
    vector: bytes = b""
    """The vector, where Generation.embedding asked for it, or the scores that Generation.scoring did: finite float32,
    little-endian. It comes whole, with the finish, in the only Delta of its generation."""
    labels: tuple[str, ...] = ()
    """What the model calls each number of `vector`, where Scoring.classes asked for them."""


class Failed(ErrorMessage, array_like=True, frozen=True, tag="f", omit_defaults=True):
    """The request is over, with an error. Its `param` is a path from an engine, the client's field for an encoder."""


Event = Started | Delta | Failed
"""What encoders are fed."""
EngineEvent = Rendered | Prefill | Event
"""What engines report."""
