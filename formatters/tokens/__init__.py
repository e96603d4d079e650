"""Which tokens a prompt has, and which text tokens have: POST /tokenize and /detokenize, as vLLM's server has them.

    request.py    {"prompt"} or {"messages", "tools", ...} to tokenize, {"tokens"} for their text
    reply.py      the answers
    openapi.py    what is taken and given, for /openapi.json

Nothing is generated (Generation.tokenize): models that embed are asked too. An error has OpenAI's form.
"""

from __future__ import annotations

from ...model.errors import LmiError
from ...model.options import Settings
from ..base import ParsedRequest, Payload, Request, Response
from ..dialect import Dialect, Route, own_response
from ..openai.reply import error_response
from .openapi import DETOKENIZE, TOKENIZE
from .request import read_detokenize, read_tokenize

__all__ = ["DIALECT", "parse", "refuse"]


TOKENIZE_PATH = "/tokenize"
DETOKENIZE_PATH = "/detokenize"

ROUTES: tuple[Route, ...] = (
    Route(TOKENIZE_PATH, described=TOKENIZE),
    Route(DETOKENIZE_PATH, described=DETOKENIZE),
)
OPENAPI = (TOKENIZE, DETOKENIZE)


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One prompt whose tokens, or whose text, are wanted; raises RequestError."""
    if request.path == DETOKENIZE_PATH or (request.path != TOKENIZE_PATH and "tokens" in payload):
        return read_detokenize(payload, request, settings)
    return read_tokenize(payload, request, settings)


def refuse(error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
    """The error as JSON, with its status."""
    return error_response(error)


DIALECT = Dialect(
    name="tokens",
    body_field="",
    routes=ROUTES,
    openapi=OPENAPI,
    names_model=True,
    matches=None,
    # A body with `prompt` or `messages` asks for an answer, unless the path or the request says otherwise.
    marks=frozenset(),
    parse=parse,
    refuse=refuse,
    for_formatters=own_response,
    read_file=None,
)
