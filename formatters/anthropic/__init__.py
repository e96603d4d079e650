"""Anthropic's Messages API: POST /v1/messages, whole and as a stream of named events, and /v1/messages/count_tokens.

    request.py    the fields
    blocks.py     `system` and `messages` with their content blocks, as conversations have them
    said.py       what messages of one role say, in the making
    tools.py      `tools` and `tool_choice`
    found.py      tools that the prompt does not list in front
    reply.py      the answers, whole and streamed; bodies.py: their bodies
    errors.py     the errors
    counting.py   count_tokens
    openapi.py    what is taken and given, for /openapi.json

A body without a path or an attribute is only taken for this dialect's where OpenAI's chat has nothing of the kind.
"""

from __future__ import annotations

from typing import Any

from ...model.errors import LmiError
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, Response
from ..dialect import Dialect, Route, own_response
from .counting import parse_count
from .errors import error_response
from .openapi import COUNT, MESSAGES
from .request import parse_messages

__all__ = ["COUNT_PATH", "DIALECT", "PATH", "matches", "parse", "refuse"]


PATH = "/v1/messages"
COUNT_PATH = "/v1/messages/count_tokens"

ROUTES: tuple[Route, ...] = (Route(PATH, described=MESSAGES), Route(COUNT_PATH, described=COUNT))
OPENAPI = (MESSAGES,)

OWN_FIELDS = ("system", "stop_sequences", "anthropic_version", "output_config", "output_format", "thread")
"""Beside `messages` no other dialect has them; anthropic_version comes from Anthropic's clients of cloud platforms."""
OWN_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "document", "search_result")


def matches(payload: Payload, request: Request, settings: Settings) -> bool:
    """Whether there are messages with what only this API has: a field, a block, a tool's `input_schema`."""
    messages = payload.get("messages")
    if not isinstance(messages, list):
        return False
    tools = payload.get("tools")
    return (
        any(payload.get(name) is not None for name in OWN_FIELDS)
        or (isinstance(tools, list) and any(isinstance(tool, dict) and "input_schema" in tool for tool in tools))
        or any(_is_own_block(block) for message in messages for block in _blocks(message))
    )


def _blocks(message: Any) -> list[Any]:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, list) else []


def _is_own_block(block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    kind = block.get("type")
    return kind in OWN_BLOCKS or (kind == "image" and isinstance(block.get("source"), dict))


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation of a conversation, or what counts its tokens."""
    read = parse_count if request.path == COUNT_PATH else parse_messages
    return read(payload, request, settings)


def refuse(error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
    """The error as JSON, with its status."""
    return error_response(error, request.request_id)


DIALECT = Dialect(
    name="anthropic",
    body_field="",
    routes=ROUTES,
    openapi=OPENAPI,
    names_model=True,
    matches=matches,
    marks=frozenset(("messages",)),
    parse=parse,
    refuse=refuse,
    for_formatters=own_response,
    read_file=None,
)
