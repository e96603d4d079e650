"""TGI's answers: events in, a JSON body or a stream of token lines out.

    whole    [{"generated_text", "details"?}]
    stream   {"index", "token", "top_tokens"?, "generated_text": null, "details": null}  ...  the last with both

An error takes the place of what was still to come: with a status before the first token, as a line after it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType

from ...model.errors import LmiError
from ...model.events import Delta, Event, Finish, FinishReason, Started, Token
from ...model.generation import nth_seed
from ..base import JSON, encode
from ..common.encoder import EncoderState
from ..common.finish import FINISH_REASONS as USUAL_REASONS
from ..common.finish import aborted
from ..lmi.reply import EVENTS, Framing
from ..openai.bodies import PromptLogprobs
from ..openai.logprobs import prompt_logprobs
from .bodies import (
    INCOMPLETE,
    BestOfSequence,
    Details,
    PrefillToken,
    Rendering,
    StreamDetails,
    StreamLine,
    TokenObject,
    WholeBody,
    error_body,
    prefill_token,
    token_object,
    top_tokens,
)

__all__ = ["ResponseOptions", "StreamEncoder", "WholeEncoder"]

FINISH_REASONS: dict[FinishReason, str] = {**USUAL_REASONS, "content_filter": "stop_sequence"}
"""TGI's clients refuse a word that they do not know; its own for an end that was not the model's is stop_sequence."""

CLOSING_TOKEN = TokenObject(-1, "", 0.0, special=True)
"""Of the last line when a sequence ends without a further token: every line has a token, and this one adds nothing."""


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """What a request asks for in its response."""

    inputs: str
    details: bool = False
    return_full_text: bool = False
    seed: int | None = None
    """What is shown: None where nothing is drawn. Sequence i has this one plus i."""
    top: bool = False
    """Whether the most likely tokens are shown."""
    prompt_top: bool = False
    """The same of the prompt's tokens."""
    echo: bool = True
    """Whether details have LMI's `inputs`."""
    array: bool = True
    """Whether a whole answer is the one element of an array."""
    ranked: bool = False
    """Whether of several sequences the best one comes first. Else it is chosen here."""


@dataclass(slots=True)
class _Encoder(EncoderState):
    """What complete and streamed responses share."""

    shape: ResponseOptions
    started: Started | None = None

    @property
    def inputs(self) -> str | UnsetType:
        """LMI's key of the details."""
        return self.shape.inputs if self.shape.echo else UNSET

    @property
    def prompt_tokens(self) -> int:
        return self.started.prompt_tokens if self.started else 0

    def full_text(self, texts: list[str]) -> str:
        text = "".join(texts)
        return self.shape.inputs + text if self.shape.return_full_text else text

    def prefill(self) -> list[PrefillToken]:
        """The prompt's tokens, where they were asked for."""
        return [prefill_token(token) for token in self.started.prefill] if self.started else []

    def prompt_top(self) -> PromptLogprobs | UnsetType:
        """The same as LMI's details have them, with the likeliest in each one's place."""
        return prompt_logprobs(self.started) if self.shape.prompt_top else UNSET

    def refuse(self, error: LmiError, rendering: Rendering | None) -> list[bytes]:
        """The complete body of an error, with its status."""
        self.finished, self.failure, self.content_type = True, error, JSON
        self.status, body = error_body(error, rendering)
        return [encode(body)]


@dataclass(slots=True)
class _Sequence:
    """One of the sequences that a whole answer is chosen from."""

    index: int
    texts: list[str] = field(default_factory=list[str])
    tokens: list[Token] = field(default_factory=list[Token])
    finish: Finish | None = None

    @property
    def mean(self) -> float:
        """What the best one is chosen by: the mean of its log-probabilities, as in TGI (router/src/infer/mod.rs)."""
        finish = self.finish
        if finish is None or finish.cumulative_logprob is None:
            return -math.inf
        return finish.cumulative_logprob / max(1, finish.generated_tokens)


@dataclass(slots=True)
class WholeEncoder(_Encoder):
    """One JSON body, once the last sequence has ended: the best of them, and in its details the others."""

    sequences: dict[int, _Sequence] = field(default_factory=dict[int, _Sequence])

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        if isinstance(event, Started):
            self.started = event
            return []
        if not isinstance(event, Delta):
            return self.refuse(event.error, None)
        sequence = self.sequences.setdefault(event.index, _Sequence(event.index))
        sequence.texts.append(event.text)
        if self.shape.details:
            sequence.tokens += event.tokens
        finish = sequence.finish = event.finish
        if finish is None:
            return []
        if finish.reason not in FINISH_REASONS:
            return self.refuse(aborted(), INCOMPLETE)
        return self._end() if finish.last else []

    def _end(self) -> list[bytes]:
        self.finished = True
        sequences = [self.sequences[index] for index in sorted(self.sequences)]
        best = sequences[0] if self.shape.ranked else max(sequences, key=lambda sequence: sequence.mean)
        self.headers = {
            "x-compute-characters": str(len(self.shape.inputs)),
            "x-prompt-tokens": str(self.prompt_tokens),
            "x-generated-tokens": str(best.finish.generated_tokens if best.finish else 0),
        }
        details: Details | UnsetType = UNSET
        if self.shape.details:
            details = self._details(best, [sequence for sequence in sequences if sequence is not best])
        body = WholeBody(self.full_text(best.texts), details)
        return [encode([body] if self.shape.array else body)]

    def _details(self, best: _Sequence, others: list[_Sequence]) -> Details:
        return Details(
            finish_reason=self._reason(best),
            generated_tokens=len(best.tokens),
            inputs=self.inputs,
            seed=self._seed(best),
            prefill=self.prefill(),
            prompt_logprobs=self.prompt_top(),
            tokens=[token_object(token) for token in best.tokens],
            best_of_sequences=[self._other(sequence) for sequence in others] or UNSET,
            top_tokens=self._top_tokens(best),
        )

    def _other(self, sequence: _Sequence) -> BestOfSequence:
        return BestOfSequence(
            generated_text=self.full_text(sequence.texts),
            finish_reason=self._reason(sequence),
            generated_tokens=len(sequence.tokens),
            seed=self._seed(sequence),
            prefill=self.prefill(),
            tokens=[token_object(token) for token in sequence.tokens],
            top_tokens=self._top_tokens(sequence),
        )

    def _seed(self, sequence: _Sequence) -> int | None:
        return None if self.shape.seed is None else nth_seed(self.shape.seed, sequence.index)

    def _reason(self, sequence: _Sequence) -> str:
        return FINISH_REASONS[sequence.finish.reason] if sequence.finish else ""

    def _top_tokens(self, sequence: _Sequence) -> list[list[TokenObject]] | UnsetType:
        return [top_tokens(token) for token in sequence.tokens] if self.shape.top else UNSET


@dataclass(slots=True)
class StreamEncoder(_Encoder):
    """A record for every token, however many come in an event. No token waits for the next one."""

    framing: Framing = EVENTS
    texts: list[str] = field(default_factory=list[str])
    count: int = 0
    """Tokens so far."""

    def __post_init__(self) -> None:
        self.content_type = self.framing.content_type
        # As TGI does, for proxies that would hold the stream back.
        self.headers = {"x-accel-buffering": "no"}

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        if isinstance(event, Started):
            self.started = event
            return []
        if not isinstance(event, Delta):
            return self._fail(event.error, None)
        self.texts.append(event.text)
        finish = event.finish
        if finish is None:
            return [self._line(token) for token in event.tokens]
        if finish.reason not in FINISH_REASONS:
            return [*(self._line(token) for token in event.tokens), *self._fail(aborted(), INCOMPLETE)]
        # Engines give the last token together with the end, so no token is for those that cannot.
        records = [self._line(token) for token in event.tokens[:-1]]
        return [*records, self._last(event.tokens[-1] if event.tokens else None, finish)]

    def _line(self, token: Token) -> bytes:
        self.count += 1
        top = top_tokens(token) if self.shape.top else UNSET
        return self.framing.record(StreamLine(self.count, token_object(token), top))

    def _last(self, token: Token | None, finish: Finish) -> bytes:
        """The last line."""
        self.finished = True
        self.count += token is not None
        details = StreamDetails(
            finish_reason=FINISH_REASONS[finish.reason],
            generated_tokens=self.count,
            inputs=self.inputs,
            seed=self.shape.seed,
            input_length=self.prompt_tokens,
            prefill=self.prefill() or UNSET,
            prompt_logprobs=self.prompt_top(),
        )
        line = StreamLine(
            self.count + 1 if token is None else self.count,
            CLOSING_TOKEN if token is None else token_object(token),
            top_tokens(token) if token is not None and self.shape.top else UNSET,
            self.full_text(self.texts),
            details if self.shape.details else None,
        )
        return self.framing.record(line)

    def _fail(self, error: LmiError, rendering: Rendering | None) -> list[bytes]:
        if self.count == 0:
            self.headers = {}
            return self.refuse(error, rendering)
        self.finished, self.failure = True, error
        return [self.framing.record(error_body(error, rendering)[1])]
