"""How many tokens a prompt has: POST /v1/messages/count_tokens.

    {"messages", "system", "tools", ...} --parse_count--> Generation(tokenize=True) --> {"input_tokens"}

The prompt is the one that the same request to /v1/messages would have, with tools and thinking; nothing is generated.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...model.errors import LmiError
from ...model.events import Delta
from ...model.generation import Generation
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, Response, encode
from ..common.encoder import Encoder
from .bodies import TokenCount
from .errors import error_response, id_header
from .request import COUNTED, conversation_of

__all__ = ["CountEncoder", "parse_count"]


def parse_count(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """A conversation that is only made into tokens; raises RequestError. What a request to generate has may be there,
    and means nothing."""
    values, _ = COUNTED.read("", payload, settings)
    conversation, _, fields = conversation_of(values, settings)
    generation = Generation(request_id=request.request_id, prompt=conversation, tokenize=True)
    reply = CountEncoder(request_id=request.request_id, headers=id_header(request.request_id))
    return ParsedRequest((generation,), reply, fields=fields)


@dataclass(slots=True, kw_only=True)
class CountEncoder(Encoder):
    """One body."""

    request_id: str

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        return []

    def _close(self) -> list[bytes]:
        return [encode(TokenCount(self.prompt_tokens))]

    def _refuse(self, error: LmiError) -> Response:
        return error_response(error, self.request_id)
