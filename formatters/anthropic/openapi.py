"""What the Messages API takes and gives, for /openapi.json."""

from __future__ import annotations

from ..base import JSON, SSE
from ..dialect import OpenApi
from .bodies import (
    BlockDelta,
    BlockStart,
    BlockStop,
    ErrorBody,
    MessageBody,
    MessageDelta,
    MessageStart,
    MessageStop,
    Ping,
    TokenCount,
)
from .request import COUNTED, ROWS

__all__ = ["COUNT", "MESSAGES"]

ERRORS = {JSON: (ErrorBody,)}
EVENTS = (MessageStart, Ping, BlockStart, BlockDelta, BlockStop, MessageDelta, MessageStop, ErrorBody)

MESSAGES = OpenApi(
    "A message of Anthropic's API, whole or as a stream", ROWS.described, {JSON: (MessageBody,), SSE: EVENTS}, ERRORS
)
COUNT = OpenApi("How many tokens a message's prompt has", COUNTED.described, {JSON: (TokenCount,)}, ERRORS)
