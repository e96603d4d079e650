"""How many tokens a prompt has: POST /v1/messages/count_tokens.

    {"messages", "system", "tools", ...} --parse_count--> Generation(tokenize=True) --> {"input_tokens"}

The prompt is the one that the same request to /v1/messages would have, with tools and thinking; nothing is generated.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...model.errors import LmiError
from ...model.events import Delta, Event, Started
from ...model.generation import Generation
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, encode
from ..common.encoder import EncoderState
from .bodies import TokenCount
from .errors import error_response, id_header
from .request import conversation_of, read_fields

__all__ = ["CountEncoder", "parse_count"]


def parse_count(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """A conversation that is only made into tokens; raises RequestError. What a request to generate has may be there,
    and means nothing."""
    conversation, _, fields = conversation_of(payload, read_fields(payload, settings), settings)
    generation = Generation(request_id=request.request_id, prompt=conversation, tokenize=True)
    reply = CountEncoder(request_id=request.request_id, headers=id_header(request.request_id))
    return ParsedRequest((generation,), reply, fields=fields)


@dataclass(slots=True, kw_only=True)
class CountEncoder(EncoderState):
    """One body."""

    request_id: str
    tokens: int = 0

    def feed(self, event: Event, prompt: int = 0) -> list[bytes]:
        """The body, with the end."""
        if isinstance(event, Started):
            self.tokens = event.prompt_tokens
            return []
        if not isinstance(event, Delta):
            return self._fail(event.error)
        if event.finish is None:
            return []
        self.finished = True
        return [encode(TokenCount(self.tokens))]

    def _fail(self, error: LmiError) -> list[bytes]:
        answer = error_response(error, self.request_id)
        self.finished, self.failure = True, error
        self.status, self.content_type = answer.status, answer.content_type
        return [answer.body]
