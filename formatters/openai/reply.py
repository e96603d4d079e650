"""What the replies of both OpenAI dialects share: identity, usage, errors, and the frame of a stream.

    whole     one JSON body when every choice has ended
    stream    data: {chunk}   data: {chunk}   ...   [data: {usage}]   data: [DONE]

An error before the first record is a JSON body with its status, for streamed requests too; later in a stream it is a
chunk, followed by [DONE] (docs/decisions.md: OpenAI errors).
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET

from ...model.errors import LmiError
from ...model.events import Delta, FinishReason
from ..base import Response, encode, event_record
from ..common.encoder import Encoder, RenderError, around
from .bodies import CompletionDetails, FinishWord, PromptDetails, Usage, error_body

__all__ = [
    "DONE",
    "FINISH_WORDS",
    "PLAIN",
    "ChatOptions",
    "ChunkEncoder",
    "Identity",
    "OpenAIEncoder",
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
    echo: str = ""
    """What each choice's content begins with."""
    completion_details: bool = True
    """Whether the usage of a whole answer has them."""


PLAIN = ChatOptions()
"""Nothing beyond the text."""


@dataclass(slots=True)
class OpenAIEncoder(Encoder):
    """A reply, but for what it makes of the text."""

    identity: Identity
    refuse: RenderError = error_response

    def usage(self) -> Usage:
        """Of all choices together."""
        return self._usage(self.generated_tokens, self.reasoning_tokens)

    def whole_usage(self, *, details: bool) -> Usage:
        """The same for an answer that is not streamed."""
        usage = self.usage()
        return usage if details else msgspec.structs.replace(usage, completion_tokens_details=UNSET)

    def _usage(self, generated: int, reasoning: int) -> Usage:
        return Usage(
            self.prompt_tokens,
            generated,
            self.prompt_tokens + generated,
            PromptDetails(self.cached_tokens),
            CompletionDetails(reasoning),
        )

    def prompt_ids(self, prompt: int = 0) -> tuple[int, ...]:
        """A prompt's token ids, where the engine was asked for them."""
        started = self.started.get(prompt)
        return () if started is None else started.prompt_ids

    def kv_transfer_params(self) -> dict[str, Any] | None:
        """Those of the first choice that has any (vLLM's server takes the first prompt's)."""
        told = (self.finishes[choice].kv_transfer_params for choice in sorted(self.finishes))
        return next((params for params in told if params is not None), None)

    def _refuse(self, error: LmiError) -> Response:
        return self.refuse(error)

    def _break_off(self, error: LmiError) -> list[bytes]:
        return [event_record(error_body(error)), DONE]


@dataclass(slots=True)
class ChunkEncoder(OpenAIEncoder):
    """A stream of chunks, each of one choice; the bytes around the choice are encoded once an answer."""

    tokens: dict[int, int] = field(default_factory=dict)
    """How many have come, by choice; only where each chunk has the usage so far, as what follows."""
    tokens_so_far: int = 0
    """Of all choices."""
    reasoning_so_far: int = 0
    """Of choices that have ended."""
    head: bytes = b""
    tail: bytes = b""

    def _encode_frame(self) -> None:
        """Once the first record is made: the engine need not wait for it."""
        head, tail = around(event_record(self._chunk()), b"[]")
        self.head, self.tail = head + b"[", b"]" + tail

    def _chunk(self, usage: Usage | None = None, choice: Any = None) -> msgspec.Struct:
        """A chunk; without a choice it has none."""
        raise NotImplementedError

    def _record(self, usage: Usage | None, choice: msgspec.Struct) -> bytes:
        """The record of a choice, with the usage so far where chunks have it."""
        if usage is None:
            if not self.head:
                self._encode_frame()
            return self.head + encode(choice) + self.tail
        return event_record(self._chunk(usage, choice))

    def _usage_before(self) -> Usage:
        """The usage so far, where nothing of a choice is told yet."""
        return self._usage(self.tokens_so_far, self.reasoning_so_far)

    def _usage_so_far(self, choice: int, delta: Delta) -> Usage:
        """The usage while choices are in the making, with a delta of one of them that has all its tokens."""
        # Sums that are kept, for there may be thousands of choices, each with a chunk in a step.
        before = self.tokens.get(choice, 0)
        now = before + len(delta.tokens)
        if (finish := delta.finish) is not None:
            now = finish.generated_tokens
            self.reasoning_so_far += finish.reasoning_tokens
        self.tokens[choice] = now
        self.tokens_so_far += now - before
        return self._usage_before()
