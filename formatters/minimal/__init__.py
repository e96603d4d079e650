"""The minimal chat API: `{"model", "messages", "stream"}` (docs/decisions.md: Minimal chat requests).

    POST /chat/completions             one body, or with `stream: true` JSON lines
    POST /chat/sse                     server-sent events
    GET  /chat/sse?request={...}       the same, for a browser's EventSource
    POST /invocations                  as /chat/completions where the request says `dialect=minimal`; its stream is
                                       server-sent events where the request says `Accept: text/event-stream`

reply.py has the answers. The fields of sampling are OpenAI's, read by its reader.
"""

from __future__ import annotations

from ...model.errors import LmiError, PayloadError
from ...model.options import Settings
from ..base import JSON, SSE, ParsedRequest, Payload, Request, Response
from ..common.fields import Table
from ..common.kinds import Boolean
from ..dialect import Dialect, OpenApi, Route, own_response
from ..openai.chat import read_chat
from ..openai.messages import PARTS, message_form
from ..openai.parameters import chat_rows
from ..openai.reply import Identity
from ..openai.subset import TEXT_FIELDS, other_fields, refuse_others
from .reply import (
    EVENTS,
    LINES,
    WHOLE,
    Body,
    Chunk,
    ErrorBody,
    ErrorLine,
    ErrorObject,
    Form,
    MinimalEncoder,
    refusal,
)

__all__ = ["DIALECT", "parse", "refuse"]


CHAT_PATH = "/chat/completions"
SSE_PATH = "/chat/sse"

ACCEPTED_FIELDS = TEXT_FIELDS
"""The fields that it takes of those that OpenAI's reader knows: its answers have a text and nothing else."""


CHAT_ROWS = chat_rows(message_form(("system", "user", "assistant"), PARTS))
REFUSED = other_fields(ACCEPTED_FIELDS)
DESCRIBED = Table((row for row in CHAT_ROWS.values() if row.name not in REFUSED), ("model", "messages"))

CHAT = OpenApi(
    "A chat completion, whole or as JSON lines",
    DESCRIBED.described,
    {JSON: (Body, Chunk, ErrorLine)},
    {JSON: (ErrorBody, ErrorLine)},
)
EVENTS_CHAT = OpenApi(
    "A chat completion as server-sent events, errors among them", DESCRIBED.described, {SSE: (Chunk, ErrorObject)}
)
OPENAPI = (CHAT,)
ROUTES: tuple[Route, ...] = (
    Route(CHAT_PATH, described=CHAT),
    Route(SSE_PATH, ("GET", "POST"), body="request", described=EVENTS_CHAT),
)


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation of a conversation."""
    if payload.get("stream") is not None:
        Boolean().read("stream", payload["stream"])
    model = payload.get("model")
    if not isinstance(model, str):
        raise PayloadError.of("model", model, "the name of a model, a string")
    form = _form(payload, request)
    refuse_others(payload, ACCEPTED_FIELDS)
    generation, _, fields = read_chat({**payload, "stream": form != WHOLE}, request, settings, CHAT_ROWS)
    reply = MinimalEncoder(Identity.new("cmpl-", model or settings.model_name), form)
    return ParsedRequest((generation,), reply, fields=fields)


def refuse(error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
    """The error in the form that the request asked for, as far as that is known."""
    return refusal(error, _form(payload or {}, request))


def _form(payload: Payload, request: Request) -> Form:
    """/chat/sse streams whatever the body says."""
    if request.path == SSE_PATH:
        return EVENTS
    if payload.get("stream") is not True:
        return WHOLE
    # /chat/completions has a sister for events; hosts with one path have none.
    wanted = request.path != CHAT_PATH and SSE in request.headers.get("accept", "").lower()
    return EVENTS if wanted else LINES


DIALECT = Dialect(
    name="minimal",
    body_field="",
    routes=ROUTES,
    openapi=OPENAPI,
    names_model=True,
    matches=None,
    # A body with `messages` is OpenAI's, unless the path or the request says otherwise.
    marks=frozenset(),
    parse=parse,
    refuse=refuse,
    for_formatters=own_response,
    read_file=None,
)
