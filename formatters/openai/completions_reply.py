"""Text completions, whole and streamed (docs/decisions.md: Text completions).

With echo a choice's text begins with its prompt; in a stream the prompt is a chunk of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from ...model.events import Delta, Finish, Started, Token
from ..base import SSE, encode, event_record
from ..common.encoder import around
from .bodies import TextBody, TextChoice, TextChunk, TextChunkChoice, TokenIds, Usage
from .logprobs import ShownTokens, TextColumns, TextLogprobs, prompt_logprobs
from .reply import DONE, FINISH_WORDS, ChunkEncoder, Identity, OpenAIEncoder

__all__ = ["StreamText", "TextOptions", "WholeText", "text_encoder"]

NOT_STARTED = Started(0)


@dataclass(frozen=True, slots=True)
class TextOptions:
    """What a request asks for in its response."""

    prompts: tuple[str | tuple[int, ...], ...]
    n: int = 1
    logprobs: int | None = None
    """How many of the most likely tokens, None: no log-probabilities."""
    echo: bool = False
    silent: bool = False
    """Whether what is generated is not shown (max_tokens 0)."""
    prompt_logprobs: bool = False
    usage: bool = False
    """Whether a stream ends with the usage."""
    continuous_usage: bool = False
    """Whether each chunk has the usage so far."""
    token_ids: bool = False
    """Whether the token ids of prompts and answers are shown."""
    ids_for_text: bool = False
    """Whether log-probabilities have tokens' ids in the place of their text."""
    completion_details: bool = True
    """Whether the usage of a whole answer has them."""


def text_encoder(model: str, shape: TextOptions, *, streams: bool) -> OpenAIEncoder:
    """The reply for a request of this shape."""
    identity = Identity.new("cmpl-", model)
    if streams:
        return StreamText(identity, n=shape.n, prompts=len(shape.prompts), content_type=SSE, shape=shape)
    return WholeText(identity, n=shape.n, prompts=len(shape.prompts), shape=shape)


_New = tuple[str, TextLogprobs | None]
"""A text and its log-probabilities."""


@dataclass(slots=True)
class _Choice:
    """A choice in the making."""

    shown: ShownTokens = field(default_factory=ShownTokens)
    columns: TextColumns = field(default_factory=TextColumns)
    texts: list[str] = field(default_factory=list[str])
    """Of a whole answer, as `logprobs` are."""
    logprobs: list[TextLogprobs] = field(default_factory=list[TextLogprobs])
    ids: list[int] = field(default_factory=list[int])
    told: bool = False
    """Whether the prompt's token ids have been sent."""
    head: bytes = b""
    tail: bytes = b""
    """The bytes around a text in a stream, where nothing else is new in a chunk."""

    def prompt(self, prompt: str | tuple[int, ...], started: Started, shape: TextOptions) -> _New:
        """The echo of its prompt."""
        text = prompt if isinstance(prompt, str) else started.text
        return text, None if shape.logprobs is None else self.columns.echo(_cut(started.prefill, shape), text)

    def new(self, delta: Delta, shape: TextOptions) -> _New:
        """What is new of it."""
        if shape.silent:
            return "", None if shape.logprobs is None else self.columns.take(())
        if shape.logprobs is None:
            return delta.text, None
        return delta.text, self.columns.take(token for token, _ in self.shown.push(delta.tokens))


def _cut(prefill: tuple[Token, ...], shape: TextOptions) -> tuple[Token, ...]:
    """The prompt's tokens with as many likely ones as `logprobs` asks for: prompt_logprobs may ask for more."""
    wanted = shape.logprobs or 0
    return tuple(msgspec.structs.replace(token, top=token.top[:wanted]) for token in prefill)


def _begun(shape: TextOptions) -> _Choice:
    return _Choice(columns=TextColumns(ids=shape.ids_for_text))


def _ids(delta: Delta, shape: TextOptions) -> list[int]:
    """The tokens that are new of a choice; what is not shown has none."""
    return [] if shape.silent else [token.id for token in delta.tokens]


def _silence(reply: OpenAIEncoder) -> None:
    """Takes the token that was generated because engines cannot do without out of an answer."""
    reply.finishes = dict.fromkeys(reply.finishes, Finish("length"))


@dataclass(slots=True)
class WholeText(OpenAIEncoder):
    """One body."""

    shape: TextOptions = TextOptions(())
    choices: dict[int, _Choice] = field(default_factory=dict[int, _Choice])

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        shape, choice = self.shape, prompt * self.n + delta.index
        state = self.choices.get(choice)
        parts: list[_New] = []
        if state is None:
            state = self.choices[choice] = _begun(shape)
            if shape.echo:
                parts.append(state.prompt(shape.prompts[prompt], self.started.get(prompt) or NOT_STARTED, shape))
        parts.append(state.new(delta, shape))
        for text, logprobs in parts:
            state.texts.append(text)
            if logprobs is not None:
                state.logprobs.append(logprobs)
        if shape.token_ids:
            state.ids += _ids(delta, shape)
        return []

    def _close(self) -> list[bytes]:
        if self.shape.silent:
            _silence(self)
        identity = self.identity
        body = TextBody(
            id=identity.id,
            created=identity.created,
            model=identity.model,
            choices=[self._choice(index, self.choices[index]) for index in sorted(self.choices)],
            usage=self.whole_usage(details=self.shape.completion_details),
            kv_transfer_params=self.kv_transfer_params(),
        )
        return [encode(body)]

    def _choice(self, index: int, state: _Choice) -> TextChoice:
        started, finish = self.started.get(index // self.n), self.finishes[index]
        return TextChoice(
            index,
            "".join(state.texts),
            None if self.shape.logprobs is None else _joined(state.logprobs),
            FINISH_WORDS[finish.reason],
            finish.stop,
            prompt_logprobs(started) if self.shape.prompt_logprobs else None,
            self.prompt_ids(index // self.n) if self.shape.token_ids else UNSET,
            state.ids if self.shape.token_ids else UNSET,
        )


def _joined(parts: list[TextLogprobs]) -> TextLogprobs:
    joined = TextLogprobs([], [], [], [])
    for part in parts:
        joined.tokens.extend(part.tokens)
        joined.token_logprobs.extend(part.token_logprobs)
        joined.top_logprobs.extend(part.top_logprobs)
        joined.text_offset.extend(part.text_offset)
    return joined


@dataclass(slots=True)
class StreamText(ChunkEncoder):
    """A chunk for every Delta that brings anything, of any choice."""

    shape: TextOptions = TextOptions(())
    choices: dict[int, _Choice] = field(default_factory=dict[int, _Choice])

    def _chunk(self, usage: Usage | None = None, choice: TextChunkChoice | None = None) -> TextChunk:
        identity = self.identity
        choices = [] if choice is None else [choice]
        return TextChunk(id=identity.id, created=identity.created, model=identity.model, choices=choices, usage=usage)

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        shape, choice = self.shape, prompt * self.n + delta.index
        state, finish = self.choices.get(choice), delta.finish
        if delta.text and state and state.head and finish is None:
            # Nearly every Delta.
            return [state.head + encode(delta.text) + state.tail]
        records: list[bytes] = []
        if state is None:
            state = self.choices[choice] = _begun(shape)
            if shape.echo:
                echo = state.prompt(shape.prompts[prompt], self.started.get(prompt) or NOT_STARTED, shape)
                told = self._told(state, prompt)
                before = self._usage_before() if shape.continuous_usage else None
                records.append(self._record(before, TextChunkChoice(choice, *echo, prompt_token_ids=told)))
        usage = self._usage_so_far(choice, delta) if shape.continuous_usage else None
        text, logprobs = state.new(delta, shape)
        ids: TokenIds = _ids(delta, shape) if shape.token_ids else UNSET
        if finish is not None:
            word = "length" if shape.silent else FINISH_WORDS[finish.reason]
            stop = None if shape.silent else finish.stop
            told = self._told(state, prompt)
            records.append(self._record(usage, TextChunkChoice(choice, text, logprobs, word, stop, told, ids)))
        elif text or (logprobs is not None and logprobs.tokens) or ids:
            told = self._told(state, prompt)
            records.append(self._record(usage, TextChunkChoice(choice, text, logprobs, None, None, told, ids)))
            if logprobs is None and usage is None and not shape.token_ids:
                state.head, state.tail = around(self._record(None, TextChunkChoice(choice, "")))
        self.begun = self.begun or bool(records)
        return records

    def _told(self, state: _Choice, prompt: int) -> TokenIds:
        """The prompt's token ids, once in a choice."""
        if state.told or not self.shape.token_ids:
            return UNSET
        state.told = True
        return self.prompt_ids(prompt)

    def _close(self) -> list[bytes]:
        if self.shape.silent:
            _silence(self)
        return [event_record(self._chunk(self.usage())), DONE] if self.shape.usage else [DONE]
