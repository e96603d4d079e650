"""The OpenAI dialect's younger sister: responses, made of items (OpenAI's API reference: Responses).

    POST /v1/responses                     a response, whole or as a stream of named events
    GET, DELETE /v1/responses/{id} ...     one that is kept (stored.py)
    POST /v1/responses/input_tokens        how many tokens its prompt would have (counting.py)
    POST /invocations                      as /v1/responses where the body has an `input` of a text or of items, and the
                                           model generates

    request.py        what a request asks for: items.py: its input as messages; parameters.py: the rest
    tools.py          its tools: offers.py reads one, custom.py the input of a custom one; choice.py: `tool_choice`
    reply.py          the whole answer; stream.py: the same in events
    bodies.py         the response and its items, typed; events.py: the events
    stored.py         responses that are kept
    openapi.py        what is taken and given, for /openapi.json

Errors are the OpenAI dialect's, in a stream that has begun an `error` event and `response.failed`.
"""

from __future__ import annotations

from typing import Any

from ...model.errors import LmiError
from ...model.options import Settings
from ..base import SSE, ParsedRequest, Payload, Request, Response
from ..dialect import Dialect, Route, own_response
from ..openai.reply import error_response
from .counting import COUNT_PATH, parse_count
from .openapi import COUNT, CREATE, DELETE, ITEMS, NOT_SERVED, RETRIEVE
from .reply import WholeResponse
from .request import read_request
from .stored import (
    CANCEL_PATH,
    COMPACT_PATH,
    ITEMS_PATH,
    STORED_PATH,
    cancel,
    compact,
    delete,
    input_items,
    retrieve,
)
from .stream import StreamedResponse

__all__ = ["DIALECT", "matches", "parse", "refuse"]


PATH = "/v1/responses"

ROUTES: tuple[Route, ...] = (
    Route(PATH, described=CREATE),
    Route(COUNT_PATH, described=COUNT),
    Route(STORED_PATH, ("GET",), page=retrieve, described=RETRIEVE),
    Route(STORED_PATH, ("DELETE",), page=delete, described=DELETE),
    Route(ITEMS_PATH, ("GET",), page=input_items, described=ITEMS),
    Route(CANCEL_PATH, page=cancel, described=NOT_SERVED),
    Route(COMPACT_PATH, page=compact, described=NOT_SERVED),
)
OPENAPI = (CREATE,)

OTHERS = ("messages", "prompt", "inputs", "encoding_format", "dimensions")
"""Fields of other requests that may have an `input`."""


def matches(payload: Payload, request: Request, settings: Settings) -> bool:
    """Whether the model generates, and there is an `input` that is a text or items: one of texts is for embeddings."""
    given: Any = payload.get("input")
    if settings.embeds or any(name in payload for name in OTHERS):
        return False
    return isinstance(given, str) or (isinstance(given, list) and all(isinstance(one, dict) for one in given[:1]))


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation of a conversation; raises RequestError."""
    if request.path == COUNT_PATH:
        return parse_count(payload, request, settings)
    generation, options, fields = read_request(payload, request, settings)
    if generation.stream:
        reply: WholeResponse = StreamedResponse(options=options, content_type=SSE)
    else:
        reply = WholeResponse(options=options)
    return ParsedRequest((generation,), reply, fields=fields, responses=request.responses)


def refuse(error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
    """The error as JSON, with its status."""
    return error_response(error)


DIALECT = Dialect(
    name="responses",
    body_field="",
    routes=ROUTES,
    openapi=OPENAPI,
    names_model=True,
    matches=matches,
    marks=frozenset(("input",)),
    parse=parse,
    refuse=refuse,
    for_formatters=own_response,
    read_file=None,
)
