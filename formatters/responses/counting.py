"""How many tokens a response's prompt would have: POST /v1/responses/input_tokens.

The prompt is the one that the same request to /v1/responses would have; nothing is generated.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ...model.errors import LmiError
from ...model.events import Delta
from ...model.generation import Generation
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, Response, encode
from ..common.encoder import Encoder
from ..openai.reply import error_response
from .request import read_request

__all__ = ["COUNT_PATH", "InputTokens", "parse_count"]

COUNT_PATH = "/v1/responses/input_tokens"


class InputTokens(msgspec.Struct, frozen=True):
    """How many tokens a prompt has (OpenAI's API reference: Responses, Get input token counts)."""

    input_tokens: int
    object: str = "response.input_tokens"


def parse_count(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """A conversation that is only made into tokens; raises RequestError. What a request to generate has may be there,
    and means nothing."""
    generation, _, fields = read_request({**payload, "stream": False, "store": False}, request, settings)
    counted = Generation(request_id=request.request_id, prompt=generation.prompt, tokenize=True)
    return ParsedRequest((counted,), CountEncoder(), fields=fields)


@dataclass(slots=True, kw_only=True)
class CountEncoder(Encoder):
    """One body."""

    def _take(self, delta: Delta, prompt: int) -> list[bytes]:
        return []

    def _close(self) -> list[bytes]:
        return [encode(InputTokens(self.prompt_tokens))]

    def _refuse(self, error: LmiError) -> Response:
        return error_response(error)
