"""LMI's answers: events in, a JSON body or a stream of token lines out (docs/decisions.md: LMI streams).

    whole    {"generated_text", "details"?}
    stream   {"token"}  {"token"}  ...  {"token", "generated_text", "details"?}     one record for every token

bodies.py has the bodies. With `logprobs` every token has its `top_tokens`.

A failure becomes the documented generation-error body, which takes the place of the whole body or of the last line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType

from ...model.errors import LmiError, NotFoundError, PayloadError, SessionError
from ...model.events import Delta, Event, Finish, Started, Token
from ..base import JSON, JSON_LINES, SSE, encode, event_record, line_record
from ..common.encoder import EncoderState
from ..common.finish import FINISH_REASONS, aborted
from ..openai.logprobs import prompt_logprobs
from .bodies import (
    BestOfSequence,
    Details,
    LastLine,
    TokenLine,
    TokenObject,
    TopTokensLine,
    UnreadableBody,
    WholeBody,
    token_objects,
)
from .status import OWN_STATUS, status_of

__all__ = [
    "EVENTS",
    "LINES",
    "Framing",
    "ResponseOptions",
    "StreamEncoder",
    "TopTokensEncoder",
    "WholeEncoder",
    "refusal",
    "unreadable",
]

ERROR_TOKEN = TokenObject(-1, "", -1, special_token=True)
CLOSING_TOKEN = TokenObject(-1, "", 0.0, special_token=True)
"""Of the last line when a sequence ends without a further token: every line has a token, and this one adds nothing."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How the records of a stream are separated."""

    content_type: str
    record: Callable[[object], bytes]


LINES = Framing(JSON_LINES, line_record)
EVENTS = Framing(SSE, event_record)


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """What a request asks for in its response."""

    inputs: str
    details: bool = False
    prefill: int | None = None
    """How many of the likeliest tokens are shown of each of the prompt's; None: the prompt's are not shown."""
    return_full_text: bool = False


def unreadable(error: LmiError) -> bytes:
    """The body of an error that the documented response has no place for."""
    return encode(UnreadableBody(error.message, status_of(error)))


def refusal(error: LmiError, framing: Framing | None) -> tuple[bytes, str]:
    """The record of an error before any other record, and its content type."""
    if isinstance(error, (PayloadError, SessionError, *OWN_STATUS)) or type(error) is NotFoundError:
        return unreadable(error), JSON
    if framing is None:
        return encode(WholeBody("", Details(finish_reason="error", tokens=None), error.message)), JSON
    return framing.record(_error_line(error)), framing.content_type


def _error_line(error: LmiError) -> LastLine:
    return LastLine(token=ERROR_TOKEN, generated_text="", details=Details(finish_reason="error"), error=error.message)


@dataclass(slots=True)
class _Encoder(EncoderState):
    """What complete and streamed responses share."""

    shape: ResponseOptions
    started: Started | None = None

    def full_text(self, texts: list[str]) -> str:
        text = "".join(texts)
        return self.shape.inputs + text if self.shape.return_full_text else text

    def details(
        self,
        reason: str,
        count: int,
        tokens: list[TokenObject] | UnsetType = UNSET,
        top: list[list[TokenObject]] | UnsetType = UNSET,
        others: list[BestOfSequence] | UnsetType = UNSET,
    ) -> Details | UnsetType:
        shape = self.shape
        if not shape.details:
            return UNSET
        return Details(
            finish_reason=reason,
            generated_tokens=count,
            inputs=shape.inputs,
            tokens=tokens,
            top_tokens=top,
            prefill=UNSET if shape.prefill is None else token_objects(self.started.prefill if self.started else ()),
            prompt_logprobs=prompt_logprobs(self.started) if shape.prefill else UNSET,
            best_of_sequences=others,
        )


@dataclass(slots=True)
class _Sequence:
    """One of the sequences of a whole answer."""

    texts: list[str] = field(default_factory=list[str])
    tokens: list[TokenObject] = field(default_factory=list[TokenObject])
    top: list[list[TokenObject]] | UnsetType = UNSET
    reason: str = ""


@dataclass(slots=True)
class WholeEncoder(_Encoder):
    """One JSON body, once the last sequence has ended. Sequences come likeliest first (model/search/best_of.py)."""

    top: bool = False
    """Whether the likeliest tokens in each one's place are shown."""
    sequences: dict[int, _Sequence] = field(default_factory=dict[int, _Sequence])

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        if isinstance(event, Delta):
            sequence = self.sequences.get(event.index)
            if sequence is None:
                sequence = self.sequences[event.index] = _Sequence(top=[] if self.top else UNSET)
            sequence.texts.append(event.text)
            if self.shape.details:
                sequence.tokens += token_objects(event.tokens)
                if sequence.top is not UNSET:
                    sequence.top += [token_objects(token.top) for token in event.tokens]
            return [] if event.finish is None else self._end(sequence, event.finish)
        if isinstance(event, Started):
            self.started = event
            return []
        return self._fail(event.error)

    def _end(self, sequence: _Sequence, finish: Finish) -> list[bytes]:
        reason = FINISH_REASONS.get(finish.reason)
        if reason is None:
            return self._fail(aborted())
        sequence.reason = reason
        if not finish.last:
            return []
        self.finished = True
        best, *others = (self.sequences[index] for index in sorted(self.sequences))
        shown = [self._other(other) for other in others] or UNSET
        details = self.details(best.reason, len(best.tokens), best.tokens, best.top, shown)
        return [encode(WholeBody(self.full_text(best.texts), details))]

    def _other(self, sequence: _Sequence) -> BestOfSequence:
        return BestOfSequence(
            self.full_text(sequence.texts), sequence.reason, len(sequence.tokens), sequence.tokens, sequence.top
        )

    def _fail(self, error: LmiError) -> list[bytes]:
        self.finished, self.failure, self.status = True, error, status_of(error)
        body, self.content_type = refusal(error, None)
        return [body]


@dataclass(slots=True)
class StreamEncoder(_Encoder):
    """A record for every token, however many come in an event. No token waits for the next one."""

    framing: Framing = LINES
    texts: list[str] = field(default_factory=list[str])
    count: int = 0
    """Token lines so far."""

    def __post_init__(self) -> None:
        self.content_type = self.framing.content_type

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        if isinstance(event, Delta):
            tokens = event.tokens
            self.texts.append(event.text)
            self.count += len(tokens)
            if event.finish is not None:
                return self._end(tokens, event.finish)
            record = self.framing.record
            return [record(TokenLine(TokenObject(token.id, token.text, token.logprob))) for token in tokens]
        if isinstance(event, Started):
            self.started = event
            return []
        return self._fail(event.error)

    def _end(self, tokens: tuple[Token, ...], finish: Finish) -> list[bytes]:
        """The last records: of the tokens, the last of them with the whole text."""
        reason = FINISH_REASONS.get(finish.reason)
        if reason is None:
            return [*map(self._line, tokens), *self._fail(aborted())]
        self.finished = True
        # Engines deliver the last token together with the end, so that no token is for those that cannot.
        (token,) = token_objects(tokens[-1:]) or (CLOSING_TOKEN,)
        line = LastLine(
            token=token,
            top_tokens=self._top(tokens[-1]) if tokens else UNSET,
            generated_text=self.full_text(self.texts),
            details=self.details(reason, self.count),
        )
        return [*map(self._line, tokens[:-1]), self.framing.record(line)]

    def _line(self, token: Token) -> bytes:
        """The record of a token that is not the last one."""
        return self.framing.record(TokenLine(TokenObject(token.id, token.text, token.logprob)))

    def _top(self, token: Token) -> list[TokenObject] | UnsetType:
        """The likeliest in a token's place, where they are shown."""
        return UNSET

    def _fail(self, error: LmiError) -> list[bytes]:
        self.finished, self.failure = True, error
        if self.count == 0:
            self.status = status_of(error)
            body, self.content_type = refusal(error, self.framing)
            return [body]
        return [self.framing.record(_error_line(error))]


@dataclass(slots=True)
class TopTokensEncoder(StreamEncoder):
    """The same with `top_tokens`: a class of its own, so that other streams pay nothing for them."""

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        if not isinstance(event, Delta) or event.finish is not None:
            return StreamEncoder.feed(self, event, prompt)
        self.texts.append(event.text)
        self.count += len(event.tokens)
        return [self._line(token) for token in event.tokens]

    def _line(self, token: Token) -> bytes:
        shown = TokenObject(token.id, token.text, token.logprob)
        return self.framing.record(TopTokensLine(shown, token_objects(token.top)))

    def _top(self, token: Token) -> list[TokenObject] | UnsetType:
        return token_objects(token.top)
