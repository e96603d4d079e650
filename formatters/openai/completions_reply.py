"""Text completions, whole and streamed (specs 000; wire-decisions: OpenAI).

With echo a choice's text begins with its prompt; in a stream the prompt is a chunk of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from ...model.events import Delta, Finish, Started, Token
from ..base import SSE, encode, event_record
from .bodies import (
    FinishWord,
    TextBody,
    TextChoice,
    TextChunk,
    TextChunkChoice,
    TextLogprobs,
    TokenIds,
    Usage,
)
from .logprobs import ShownTokens, TextColumns, prompt_logprobs
from .reply import DONE, Identity, OpenAIEncoder, StreamFrame

__all__ = ["StreamText", "TextOptions", "WholeText", "text_encoder"]


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


def text_encoder(model: str, shape: TextOptions, *, streams: bool) -> OpenAIEncoder:
    """The reply for a request of this shape."""
    identity = Identity.new("cmpl-", model)
    if streams:
        return StreamText(identity, shape.n, len(shape.prompts), content_type=SSE, shape=shape)
    return WholeText(identity, shape.n, len(shape.prompts), shape=shape)


@dataclass(slots=True)
class _Choice:
    """A choice in the making."""

    shown: ShownTokens = field(default_factory=ShownTokens)
    columns: TextColumns = field(default_factory=TextColumns)
    texts: list[str] = field(default_factory=list[str])
    logprobs: list[TextLogprobs] = field(default_factory=list[TextLogprobs])
    ids: list[int] = field(default_factory=list[int])
    told: bool = False
    """Whether the prompt's token ids have been sent."""
    word: FinishWord = "stop"


@dataclass(slots=True)
class _TextReply(OpenAIEncoder):
    """What complete and streamed responses share."""

    shape: TextOptions = TextOptions(())
    choices: dict[int, _Choice] = field(default_factory=dict[int, _Choice])

    def _prompt(self, state: _Choice, choice: int) -> tuple[str, TextLogprobs | None]:
        """The echo of a choice's prompt."""
        number = choice // self.n
        started = self.started.get(number) or Started(0)
        prompt = self.shape.prompts[number]
        text = prompt if isinstance(prompt, str) else started.text
        if self.shape.logprobs is None:
            return text, None
        return text, state.columns.echo(_cut(started.prefill, self.shape), text)

    def _new(self, state: _Choice, delta: Delta) -> tuple[str, TextLogprobs | None]:
        """What is new of a choice."""
        if self.shape.silent:
            return "", None if self.shape.logprobs is None else state.columns.take(())
        if self.shape.logprobs is None:
            return delta.text, None
        return delta.text, state.columns.take(token for token, _ in state.shown.push(delta.tokens))

    def _begun(self) -> _Choice:
        return _Choice(columns=TextColumns(ids=self.shape.ids_for_text))

    def _ids(self, delta: Delta) -> list[int]:
        """The tokens that are new of a choice; what is not shown has none."""
        return [] if self.shape.silent else [token.id for token in delta.tokens]

    def _close(self) -> list[bytes]:
        if self.shape.silent:
            # The token that was generated because engines cannot do without is no part of the answer.
            self.finishes = dict.fromkeys(self.finishes, Finish("length"))
        return self._end()

    def _end(self) -> list[bytes]:
        raise NotImplementedError


def _cut(prefill: tuple[Token, ...], shape: TextOptions) -> tuple[Token, ...]:
    """The prompt's tokens with as many likely ones as `logprobs` asks for: prompt_logprobs may ask for more."""
    wanted = shape.logprobs or 0
    return tuple(msgspec.structs.replace(token, top=token.top[:wanted]) for token in prefill)


@dataclass(slots=True)
class WholeText(_TextReply):
    """One body."""

    def _take(self, delta: Delta, choice: int, word: FinishWord | None) -> list[bytes]:
        state = self.choices.get(choice)
        parts: list[tuple[str, TextLogprobs | None]] = []
        if state is None:
            state = self.choices[choice] = self._begun()
            if self.shape.echo:
                parts.append(self._prompt(state, choice))
        parts.append(self._new(state, delta))
        for text, logprobs in parts:
            state.texts.append(text)
            if logprobs is not None:
                state.logprobs.append(logprobs)
        if self.shape.token_ids:
            state.ids += self._ids(delta)
        if word is not None:
            state.word = "length" if self.shape.silent else word
        return []

    def _end(self) -> list[bytes]:
        identity = self.identity
        body = TextBody(
            id=identity.id,
            created=identity.created,
            model=identity.model,
            choices=[self._choice(index, self.choices[index]) for index in sorted(self.choices)],
            usage=self.usage(),
            kv_transfer_params=self.kv_transfer_params(),
        )
        return [encode(body)]

    def _choice(self, index: int, state: _Choice) -> TextChoice:
        started = self.started.get(index // self.n)
        return TextChoice(
            index,
            "".join(state.texts),
            None if self.shape.logprobs is None else _joined(state.logprobs),
            state.word,
            self.finishes[index].stop,
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
class StreamText(_TextReply):
    """A chunk for every Delta that brings anything, of any choice."""

    frame: StreamFrame = field(init=False)

    def __post_init__(self) -> None:
        self.frame = StreamFrame(self._chunk(None))

    def _chunk(self, usage: Usage | None, choice: TextChunkChoice | None = None) -> TextChunk:
        identity = self.identity
        choices = [] if choice is None else [choice]
        return TextChunk(id=identity.id, created=identity.created, model=identity.model, choices=choices, usage=usage)

    def _record(self, usage: Usage | None, choice: TextChunkChoice) -> bytes:
        return self.frame.record(choice) if usage is None else event_record(self._chunk(usage, choice))

    def _take(self, delta: Delta, choice: int, word: FinishWord | None) -> list[bytes]:
        usage = self.usage_so_far(choice, delta) if self.shape.continuous_usage else None
        records: list[bytes] = []
        state = self.choices.get(choice)
        if state is None:
            state = self.choices[choice] = self._begun()
            if self.shape.echo:
                self.begun = True
                told = self._told(state, choice)
                records.append(
                    self._record(usage, TextChunkChoice(choice, *self._prompt(state, choice), prompt_token_ids=told))
                )
        text, logprobs = self._new(state, delta)
        ids: TokenIds = self._ids(delta) if self.shape.token_ids else UNSET
        if word is not None:
            stop = delta.finish.stop if delta.finish else None
            if self.shape.silent:
                word, stop = "length", None
            told = self._told(state, choice)
            records.append(self._record(usage, TextChunkChoice(choice, text, logprobs, word, stop, told, ids)))
        elif text or (logprobs is not None and logprobs.tokens) or ids:
            told = self._told(state, choice)
            records.append(self._record(usage, TextChunkChoice(choice, text, logprobs, None, None, told, ids)))
        self.begun = self.begun or bool(records)
        return records

    def _told(self, state: _Choice, choice: int) -> TokenIds:
        """The prompt's token ids, once in a choice."""
        if state.told or not self.shape.token_ids:
            return UNSET
        state.told = True
        return self.prompt_ids(choice // self.n)

    def _end(self) -> list[bytes]:
        return [event_record(self._chunk(self.usage())), DONE] if self.shape.usage else [DONE]
