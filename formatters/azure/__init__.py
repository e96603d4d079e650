"""The dialect of Azure AI Model Inference: chat completions (docs/decisions.md: Azure requests).

    request.py   api-version, extra-parameters, deployments, the forms of parts; the fields that are taken
    reply.py     the answers
    errors.py    the errors

The query parameter `api-version` selects it, on its own paths and on /invocations, as far as the host hands it over:
DJL's rolling batch does not. What the body says is read as OpenAI's.
"""

from __future__ import annotations

from functools import partial

import msgspec

from ...model.engine import EngineInfo
from ...model.errors import LmiError, NotFoundError, RequestError
from ...model.options import Settings
from ..base import JSON, SSE, ParsedRequest, Payload, Request, Response, encode
from ..common.schemas import STRING
from ..dialect import Dialect, JsonSchema, OpenApi, Route, own_response
from ..openai.bodies import ChatChunk, ErrorBody
from ..openai.chat import read_chat
from .errors import OtherError, PlainError, UnprocessableError, error_response
from .reply import Body, azure_encoder
from .request import (
    API_VERSION,
    CHAT_ROWS,
    DEPLOYMENT,
    DESCRIBED,
    EXTRAS,
    check_deployment,
    check_version,
    read_payload,
)

__all__ = ["DIALECT", "parse", "refuse"]


class ModelInfo(msgspec.Struct, frozen=True):
    """What Azure's client reads from /info (ModelInfo of azure-ai-inference)."""

    model_name: str
    model_type: str
    model_provider_name: str = "lmi"


ERRORS = {JSON: (PlainError, UnprocessableError, OtherError)}
# The dialects that share a path with this one do not look at them: no value is wrong for all.
HEADERS: dict[str, JsonSchema] = {EXTRAS: STRING, DEPLOYMENT: STRING}


CHAT = OpenApi(
    "A chat completion of Azure AI Model Inference, whole or as a stream",
    DESCRIBED.described,
    {JSON: (Body,), SSE: (ChatChunk, ErrorBody, PlainError, UnprocessableError, OtherError)},
    ERRORS,
    HEADERS,
)
OPENAPI = (CHAT,)
INFO = OpenApi("What is served, for Azure's client", answers={JSON: (ModelInfo,)}, errors=ERRORS)
NOT_SERVED = OpenApi("For models of another kind: always 404", answers={}, errors=ERRORS)


def model_info(request: Request, settings: Settings, info: EngineInfo) -> Response:
    """What is served."""
    try:
        check_version(request)
    except RequestError as error:
        return refuse(error, None, request, settings)
    kind = {"embed": "embeddings", "rank": "text_ranking", "classify": "text_classification"}.get(settings.task)
    return Response(encode(ModelInfo(settings.model_name, kind or "chat_completion")))


def not_served(request: Request, settings: Settings, info: EngineInfo) -> Response:
    """The 404 of a route for models of another kind (Azure's reference: Modality not supported by the model)."""
    served = {
        "embed": "makes embeddings: POST /v1/embeddings",
        "rank": "ranks texts: POST /rerank",
        "classify": "classifies texts: POST /classify",
    }.get(settings.task, "serves /chat/completions")
    message = f"{request.path}: not supported by the model, which {served}"
    return refuse(NotFoundError(message), None, request, settings)


ROUTES: tuple[Route, ...] = (
    Route("/chat/completions", query=API_VERSION, described=CHAT),
    Route("/invocations", query=API_VERSION, described=CHAT),
    Route("/info", ("GET",), query=API_VERSION, page=model_info, described=INFO),
    *(
        Route(path, query=API_VERSION, page=not_served, described=NOT_SERVED)
        for path in ("/completions", "/embeddings", "/images/embeddings", "/images/generations")
    ),
)


def parse(payload: Payload, request: Request, settings: Settings) -> ParsedRequest:
    """One generation of a conversation."""
    check_version(request)
    check_deployment(request, settings)
    payload = read_payload(payload, request)
    generation, shape, fields = read_chat(payload, request, settings, CHAT_ROWS)
    render_error = partial(error_response, payload=payload, headers=request.headers)
    reply = azure_encoder(settings.model_name, shape, render_error, streams=generation.stream)
    return ParsedRequest((generation,), reply, fields=fields)


def refuse(error: LmiError, payload: Payload | None, request: Request, settings: Settings) -> Response:
    """The error as JSON with its status and code, for streamed requests too."""
    return error_response(error, payload, request.headers)


DIALECT = Dialect(
    name="azure",
    body_field="",
    routes=ROUTES,
    openapi=OPENAPI,
    names_model=True,
    matches=None,
    # A body alone does not show that it is Azure's; ROUTES do.
    marks=frozenset(),
    parse=parse,
    refuse=refuse,
    for_formatters=own_response,
    read_file=None,
)
