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
from ...model.events import Delta, Finish, FinishReason, Token
from ...model.generation import nth_seed
from ..base import Response, encode
from ..common.encoder import FINISH_REASONS as USUAL_REASONS
from ..common.encoder import Encoder
from ..lmi.reply import EVENTS, Framing
from ..openai.logprobs import PromptLogprobs, prompt_logprobs
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
class _Encoder(Encoder):
    """What complete and streamed responses share. There is one prompt."""

    shape: ResponseOptions
    rendering: Rendering | None = None
    """Of an error; None: by its class."""

    @property
    def inputs(self) -> str | UnsetType:
        """LMI's key of the details."""
        return self.shape.inputs if self.shape.echo else UNSET

    def full_text(self, texts: list[str]) -> str:
        text = "".join(texts)
        return self.shape.inputs + text if self.shape.return_full_text else text

    def prefill(self) -> list[PrefillToken]:
        """The prompt's tokens, where they were asked for."""
        started = self.started.get(0)
        return [prefill_token(token) for token in started.prefill] if started else []

    def prompt_top(self) -> PromptLogprobs | UnsetType:
        """The same as LMI's details have them, with the likeliest in each one's place."""
        return prompt_logprobs(self.started.get(0)) if self.shape.prompt_top else UNSET

    def _cut_off(self) -> list[bytes]:
        self.rendering = INCOMPLETE
        return Encoder._cut_off(self)

    def _refuse(self, error: LmiError) -> Response:
        status, body = error_body(error, self.rendering)
        return Response(encode(body), status, failure=error)


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

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        sequence = self.sequences.setdefault(delta.index, _Sequence(delta.index))
        sequence.texts.append(delta.text)
        if self.shape.details:
            sequence.tokens += delta.tokens
        sequence.finish = delta.finish
        return []

    def _is_last(self, finish: Finish) -> bool:
        return finish.last

    def _close(self) -> list[bytes]:
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

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        self.texts.append(delta.text)
        tokens, finish = delta.tokens, delta.finish
        if finish is None:
            return [self._line(token) for token in tokens]
        # Engines give the last token together with the end, so no token is for those that cannot.
        records = [self._line(token) for token in tokens[:-1]]
        return [*records, self._last(tokens[-1] if tokens else None, finish)]

    def _line(self, token: Token) -> bytes:
        self.count += 1
        top = top_tokens(token) if self.shape.top else UNSET
        return self.framing.record(StreamLine(self.count, token_object(token), top))

    def _last(self, token: Token | None, finish: Finish) -> bytes:
        """The last line."""
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

    def _close(self) -> list[bytes]:
        return []

    def _fail(self, error: LmiError) -> list[bytes]:
        self.begun = self.count > 0
        return _Encoder._fail(self, error)

    def _break_off(self, error: LmiError) -> list[bytes]:
        return [self.framing.record(error_body(error, self.rendering)[1])]
