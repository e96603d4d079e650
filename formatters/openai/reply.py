"""What the replies of both OpenAI dialects share: identity, usage, errors, and the frame of a stream.

    whole     one JSON body when every choice has ended
    stream    data: {chunk}   data: {chunk}   ...   [data: {usage}]   data: [DONE]

An error before the first record is a JSON body with its status, for streamed requests too; later in a stream it is a
chunk, followed by [DONE] (wire-decisions: OpenAI, Errors).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ...model.errors import GenerationError, LmiError
from ...model.events import Delta, Event, Finish, FinishReason, Started
from ..base import Response, encode, event_record
from ..common.encoder import EncoderState
from .bodies import CompletionDetails, FinishWord, PromptDetails, Usage, error_body

__all__ = [
    "DONE",
    "FINISH_WORDS",
    "PLAIN",
    "ChatOptions",
    "Identity",
    "OpenAIEncoder",
    "RenderError",
    "StreamFrame",
    "error_response",
]

DONE = b"data: [DONE]\n\n"

FINISH_WORDS: dict[FinishReason, FinishWord] = {
    "eos": "stop",
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
}
"""What is not in it, `abort`, is an error."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What is the same in every chunk of an answer."""

    id: str
    created: int
    model: str

    @classmethod
    def new(cls, prefix: str, model: str) -> Identity:
        """Of an answer that begins now."""
        return cls(prefix + uuid.uuid4().hex, int(time.time()), model)


RenderError = Callable[[LmiError], Response]
"""The response for an error where nothing has been sent yet."""


def error_response(error: LmiError) -> Response:
    """OpenAI's: the error as JSON, with its status."""
    return Response(encode(error_body(error)), error.status, failure=error)


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What a chat request asks for in its response."""

    n: int = 1
    logprobs: bool = False
    reasoning: bool = False
    """Whether messages have their reasoning."""
    reasoning_content: bool = True
    """Whether they have it by its older name too."""
    legacy: bool = False
    """Whether a call is a `function_call`."""
    custom: frozenset[str] = frozenset()
    """The names of functions that stand for custom tools."""
    prompt_logprobs: bool = False
    usage: bool = False
    """Whether a stream ends with the usage."""
    continuous_usage: bool = False
    """Whether each chunk has the usage so far."""
    prompt_ids: bool = False
    """Whether the prompt's token ids are shown."""
    token_ids: bool = False
    """Whether those of the answer are."""
    ids_for_text: bool = False
    """Whether log-probabilities have tokens' ids in the place of their text."""


PLAIN = ChatOptions()
"""Nothing beyond the text."""


@dataclass(slots=True)
class OpenAIEncoder(EncoderState):
    """A reply, but for what it makes of the text. Choice number `prompt * n + sequence` is one sequence's."""

    identity: Identity
    n: int = 1
    """Choices of each prompt."""
    prompts: int = 1
    render_error: RenderError = error_response
    begun: bool = False
    """Whether a record has been returned."""
    started: dict[int, Started] = field(default_factory=dict[int, Started])
    """By prompt."""
    finishes: dict[int, Finish] = field(default_factory=dict[int, Finish])
    """By choice."""
    tokens: dict[int, int] = field(default_factory=dict[int, int])
    """How many have come, by choice; only where each chunk has the usage so far, as what follows."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    reasoning_tokens: int = 0
    """Those of choices that have ended."""

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """The records that `event` completes."""
        if isinstance(event, Delta):
            finish = event.finish
            choice = prompt * self.n + event.index
            if finish is None:
                return self._take(event, choice, None)
            word = FINISH_WORDS.get(finish.reason)
            if word is None:
                # What there is of the text is sent before the error.
                records = self._take(msgspec.structs.replace(event, finish=None), choice, None)
                return records + self._fail(GenerationError("the generation was cut off before its end"))
            self.finishes[choice] = finish
            records = self._take(event, choice, word)
            if len(self.finishes) < self.n * self.prompts:
                return records
            self.finished = True
            return records + self._close()
        if isinstance(event, Started):
            self.started[prompt] = event
            self.prompt_tokens += event.prompt_tokens
            self.cached_tokens += event.cached_tokens
            return []
        return self._fail(event.error)

    def _take(self, delta: Delta, choice: int, word: FinishWord | None) -> list[bytes]:
        """What is new of one choice; with `word` it has ended."""
        raise NotImplementedError

    def _close(self) -> list[bytes]:
        """The records after the last choice has ended."""
        raise NotImplementedError

    def _fail(self, error: LmiError) -> list[bytes]:
        self.finished, self.failure = True, error
        if self.begun:
            return [event_record(error_body(error)), DONE]
        answer = self.render_error(error)
        self.status, self.content_type, self.headers = answer.status, answer.content_type, answer.headers
        return [answer.body]

    def usage(self) -> Usage:
        """Of all choices together; a prompt counts once."""
        prompt_tokens = sum(started.prompt_tokens for started in self.started.values())
        finishes = self.finishes.values()
        # What best_of discards has been generated too.
        generated = sum(finish.generated_tokens + finish.discarded_tokens for finish in finishes)
        reasoning = sum(finish.reasoning_tokens + finish.discarded_reasoning_tokens for finish in finishes)
        return Usage(
            prompt_tokens,
            generated,
            prompt_tokens + generated,
            PromptDetails(sum(started.cached_tokens for started in self.started.values())),
            CompletionDetails(reasoning),
        )

    def usage_so_far(self, choice: int, delta: Delta) -> Usage:
        """The same while choices are in the making, with a delta of one of them that has all its tokens."""
        # Sums that are kept, for there may be thousands of choices, each with a chunk in a step.
        before = self.tokens.get(choice, 0)
        now = before + len(delta.tokens)
        if finish := self.finishes.get(choice):
            now = finish.generated_tokens
            self.reasoning_tokens += finish.reasoning_tokens
        self.tokens[choice] = now
        self.generated_tokens += now - before
        return Usage(
            self.prompt_tokens,
            self.generated_tokens,
            self.prompt_tokens + self.generated_tokens,
            PromptDetails(self.cached_tokens),
            CompletionDetails(self.reasoning_tokens),
        )

    def prompt_ids(self, prompt: int = 0) -> tuple[int, ...]:
        """A prompt's token ids, where the engine was asked for them."""
        started = self.started.get(prompt)
        return () if started is None else started.prompt_ids

    def kv_transfer_params(self) -> dict[str, Any] | None:
        """Those of the first choice that has any (vLLM's server takes the first prompt's)."""
        told = (self.finishes[choice].kv_transfer_params for choice in sorted(self.finishes))
        return next((params for params in told if params is not None), None)


class StreamFrame:
    """The bytes around a chunk's choice, encoded once an answer: only the choice is new in a chunk."""

    __slots__ = ("_head", "_tail")

    def __init__(self, empty: Any) -> None:
        """From a chunk with no choices."""
        self._head, _, self._tail = event_record(empty).rpartition(b"[]")
        self._head += b"["
        self._tail = b"]" + self._tail

    def record(self, choice: Any) -> bytes:
        """The chunk with this choice."""
        return self._head + encode(choice) + self._tail
