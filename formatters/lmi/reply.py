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
from ...model.events import Delta, Event, Finish, Token
from ..base import JSON_LINES, SSE, Response, encode, event_record, line_record
from ..common.encoder import FINISH_REASONS, Encoder
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


def unreadable(error: LmiError) -> Response:
    """An error that the documented response has no place for."""
    status = status_of(error)
    return Response(encode(UnreadableBody(error.message, status)), status, failure=error)


def refusal(error: LmiError, framing: Framing | None) -> Response:
    """An error before any record."""
    if isinstance(error, (PayloadError, SessionError, *OWN_STATUS)) or type(error) is NotFoundError:
        return unreadable(error)
    status = status_of(error)
    if framing is None:
        body = WholeBody("", Details(finish_reason="error", tokens=None), error.message)
        return Response(encode(body), status, failure=error)
    return Response(framing.record(_error_line(error)), status, framing.content_type, failure=error)


def _error_line(error: LmiError) -> LastLine:
    return LastLine(token=ERROR_TOKEN, generated_text="", details=Details(finish_reason="error"), error=error.message)


@dataclass(slots=True)
class _Encoder(Encoder):
    """What complete and streamed responses share. There is one prompt."""

    shape: ResponseOptions

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
        shape, started = self.shape, self.started.get(0)
        if not shape.details:
            return UNSET
        return Details(
            finish_reason=reason,
            generated_tokens=count,
            inputs=shape.inputs,
            tokens=tokens,
            top_tokens=top,
            prefill=UNSET if shape.prefill is None else token_objects(started.prefill if started else ()),
            prompt_logprobs=prompt_logprobs(started) if shape.prefill else UNSET,
            best_of_sequences=others,
        )


@dataclass(slots=True)
class _Sequence:
    """One of the sequences of a whole answer."""

    texts: list[str] = field(default_factory=list[str])
    tokens: list[TokenObject] = field(default_factory=list[TokenObject])
    top: list[list[TokenObject]] | UnsetType = UNSET


@dataclass(slots=True)
class WholeEncoder(_Encoder):
    """One JSON body, once the last sequence has ended. Sequences come likeliest first (model/search/best_of.py)."""

    top: bool = False
    """Whether the likeliest tokens in each one's place are shown."""
    sequences: dict[int, _Sequence] = field(default_factory=dict[int, _Sequence])

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        sequence = self.sequences.get(delta.index)
        if sequence is None:
            sequence = self.sequences[delta.index] = _Sequence(top=[] if self.top else UNSET)
        sequence.texts.append(delta.text)
        if self.shape.details:
            sequence.tokens += token_objects(delta.tokens)
            if sequence.top is not UNSET:
                sequence.top += [token_objects(token.top) for token in delta.tokens]
        return []

    def _is_last(self, finish: Finish) -> bool:
        return finish.last

    def _close(self) -> list[bytes]:
        first, *others = sorted(self.sequences)
        best = self.sequences[first]
        shown = [self._other(index) for index in others] or UNSET
        details = self.details(self._reason(first), len(best.tokens), best.tokens, best.top, shown)
        return [encode(WholeBody(self.full_text(best.texts), details))]

    def _other(self, index: int) -> BestOfSequence:
        sequence = self.sequences[index]
        text, reason = self.full_text(sequence.texts), self._reason(index)
        return BestOfSequence(text, reason, len(sequence.tokens), sequence.tokens, sequence.top)

    def _reason(self, index: int) -> str:
        finish = self.finishes.get(index)
        return FINISH_REASONS[finish.reason] if finish else ""

    def _refuse(self, error: LmiError) -> Response:
        return refusal(error, None)


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
        """The records that `event` completes."""
        if isinstance(event, Delta) and event.finish is None:
            # Nearly every event.
            tokens, record = event.tokens, self.framing.record
            self.texts.append(event.text)
            self.count += len(tokens)
            return [record(TokenLine(TokenObject(token.id, token.text, token.logprob))) for token in tokens]
        return _Encoder.feed(self, event, prompt)

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        """The last records: of the tokens, the last of them with the whole text."""
        tokens, finish = delta.tokens, self.finishes[0]
        self.texts.append(delta.text)
        self.count += len(tokens)
        # Engines deliver the last token together with the end, so that no token is for those that cannot.
        (token,) = token_objects(tokens[-1:]) or (CLOSING_TOKEN,)
        line = LastLine(
            token=token,
            top_tokens=self._top(tokens[-1]) if tokens else UNSET,
            generated_text=self.full_text(self.texts),
            details=self.details(FINISH_REASONS[finish.reason], self.count),
        )
        return [*map(self._line, tokens[:-1]), self.framing.record(line)]

    def _close(self) -> list[bytes]:
        return []

    def _line(self, token: Token) -> bytes:
        """The record of a token that is not the last one."""
        return self.framing.record(TokenLine(TokenObject(token.id, token.text, token.logprob)))

    def _top(self, token: Token) -> list[TokenObject] | UnsetType:
        """The likeliest in a token's place, where they are shown."""
        return UNSET

    def _fail(self, error: LmiError) -> list[bytes]:
        self.begun = self.count > 0
        return _Encoder._fail(self, error)

    def _refuse(self, error: LmiError) -> Response:
        return refusal(error, self.framing)

    def _break_off(self, error: LmiError) -> list[bytes]:
        return [self.framing.record(_error_line(error))]


@dataclass(slots=True)
class TopTokensEncoder(StreamEncoder):
    """The same with `top_tokens`: a class of its own, so that other streams pay nothing for them."""

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """The records that `event` completes."""
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
