"""The local server: a model directory on a laptop, with the routes that SageMaker calls.

    GET  /ping                 200 while the engine is healthy, else 503
    GET  /metrics              what Prometheus collects
    POST /invocations          any dialect, by the body
    POST /predictions/{name}   the same
    GET  /health               as /ping, with TGI's error
    GET  /                     a page to try requests with, and GET /playground/... (playground/)
    GET  /openapi.json         this list for programs (openapi.py), with all routes of dialects
    POST /adapters ...         adapters.py
    POST /cancel               cancel.py

and with those that clients written for one dialect call: each dialect says its own in ROUTES, as OpenAI's
POST /v1/chat/completions, TGI's POST /generate_stream or Azure's POST /chat/completions with `api-version`.

With a key, every request but /ping, /health and the page's own files needs `Authorization: Bearer KEY` (or
`api-key: KEY` or `x-api-key: KEY`). The first two are for probes, which ask by whatever address they have, and tell
nothing: access.py judges all others.

It serves what the DJL hosts serve, through the same core; unlike them it sends any status and body, and it learns
when a client goes away, at which the engine's work for it ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from anyio.lowlevel import checkpoint
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.responses import Response as HttpResponse

from ...formatters import Request, Response, routed
from ...formatters.base import attributes_of, request_id_of
from ...formatters.dialect import Way
from ...formatters.routing import INVOCATIONS
from ...model.errors import LmiError, OverloadedError, TimeLimitError, TooLargeError, UnavailableError
from ..admission import longest_body
from ..exchange import Exchange
from ..headers import REQUEST_ID_HEADER, headers_of
from ..model_code import has_hooks
from ..scraping.exposition import Exposition
from ..scraping.http_requests import Counted, HttpRequests
from ..service import Service
from .access import Access
from .adapters import AdapterRoutes
from .body_reading import BODIES, DISCARD_TIMEOUT_S, Bodies, EarlyResponse, is_small, read_body, refuse_body
from .cancel import cancel_route
from .connections.connection import connection_of
from .connections.direct import Answer, Head, Wire
from .hooks import hooked
from .openapi import document
from .paths import HttpRoute, OwnPaths, dialect_routes, posted_paths
from .playground.facts import setup
from .playground.files import file_routes
from .streams import AsyncService, StreamResponse

__all__ = ["application"]

log = logging.getLogger(__name__)


class LocalServer:
    """The routes of one service."""

    def __init__(self, service: Service, access: Access) -> None:
        self._service = service
        self._access = access
        self._streams: AsyncService
        self._document: dict[str, Any] | None = None
        self.bodies = Bodies(BODIES * service.settings.limits.max_body_bytes)
        self.requests = HttpRequests()
        self._exposition = Exposition(service, self.requests)
        self.paths = {path.encode(): path for path in posted_paths()}
        """Those of requests that `begin` takes, by what stands in a target."""

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Ties the service to the event loop that the server runs on."""
        self._streams = AsyncService(self._service)
        # Imports anyio's backend, 25 ms that no request is to wait for.
        await checkpoint()
        with self._streams.reading():
            yield

    async def ping(self, _request: HttpRequest) -> HttpResponse:
        """SageMaker's health check; only its status counts there."""
        if self._service.healthy:
            return JSONResponse({"status": "Healthy"})
        return JSONResponse({"status": "Unhealthy", "reason": self._service.why_unhealthy}, 503, LATER)

    async def health(self, _request: HttpRequest) -> HttpResponse:
        """TGI's health check: the same, with TGI's error (text-generation-inference, router/src/server.rs, health)."""
        if self._service.healthy:
            return JSONResponse({"status": "Healthy"})
        return JSONResponse({"error": "unhealthy", "error_type": "healthcheck"}, 503, LATER)

    async def metrics(self, http: HttpRequest) -> HttpResponse:
        """Prometheus' scrape: no text of requests or responses, but the API key is required here too."""
        if refused := self._access.refusal(http.headers):
            return _refused(refused)
        text, content_type = await self._exposition.scrape(http.headers.get("accept", ""))
        return HttpResponse(text, headers={"content-type": content_type})

    async def openapi(self, http: HttpRequest) -> HttpResponse:
        """What the routes take and give (OpenAPI 3.1)."""
        if refused := self._access.refusal(http.headers):
            return _refused(refused)
        if self._document is None:
            service = self._service
            # The schemas of the user's own dialects are user code.
            self._document = await service.run_user_code(
                lambda: document(http.app.routes, service.dialects, service.settings, key=self._access.needs_key)
            )
        return JSONResponse(self._document)

    async def setup(self, http: HttpRequest) -> HttpResponse:
        """What the playground must know of the model."""
        if refused := self._access.refusal(http.headers):
            return _refused(refused)
        service = self._service
        # What a dialect of the user's matches is user code.
        told = await service.run_user_code(lambda: setup(service.settings, service.info, service.dialects))
        return JSONResponse(told, headers={"Cache-Control": "no-store"})

    async def serve(self, http: HttpRequest) -> HttpResponse:
        """A request in any dialect; its id is the header X-Request-Id's, and returned there."""
        request_id = request_id_of(http.headers.get(REQUEST_ID_HEADER))
        response = await self._respond(http, request_id)
        response.headers[REQUEST_ID_HEADER] = request_id
        return response

    async def _respond(self, http: HttpRequest, request_id: str) -> HttpResponse:
        request = Request(
            body=b"",
            headers=dict(http.headers),
            query=dict(http.query_params),
            attributes=attributes_of(http.headers.items()),
            path=_path(http.scope["path"]),
            method="GET" if http.method == "HEAD" else http.method,
            request_id=request_id,
        )
        request = routed(request, self._service.dialects)
        way = request.way
        assert way is not None
        settings = self._service.settings
        max_bytes, timeout = longest_body(settings, http.headers), settings.limits.request_timeout
        refused = self._refusal(http, request, way)
        # A short body is read first: it decides the dialect of the refusal.
        whole = refused is None or (is_small(http) and not isinstance(refused, TooLargeError))
        if whole:
            if refused is not None:
                timeout = min(timeout, DISCARD_TIMEOUT_S)
            try:
                connection = connection_of(http.scope)
                waits = connection is None or not connection.has_body
                body = await read_body(http, max_bytes, self.bodies, timeout, waits=waits)
                request = replace(request, body=body)
            except (TooLargeError, OverloadedError, TimeLimitError) as error:
                refused, whole = refused or error, False
            except ClientDisconnect:
                # Nobody reads it.
                return HttpResponse(status_code=400)
        if request.method == "GET" and way.route and (parameter := way.route.body):
            request = replace(request, body=request.query.get(parameter, "").encode())
        if refused is not None and not self._service.takes_anyway(request, refused):
            answer = _http_answer(self._service.refuse(request, refused))
            return answer if whole else EarlyResponse(answer, max_bytes)
        if way.route is None and request.path != INVOCATIONS:
            # A path that is a dialect's with some query parameter only.
            return HttpResponse("Not Found", 404, media_type="text/plain")
        if http.method == "HEAD" and not (way.route and way.route.page):
            # It would start what a GET asks for, for nobody.
            allowed = ", ".join(way.route.methods if way.route else ("POST",))
            return HttpResponse("Method Not Allowed", 405, {"Allow": allowed}, media_type="text/plain")
        opened = self._streams.open(request)
        if opened.exchange.finished and not opened.exchange.call.streamed:
            return _http_answer(opened.exchange)
        return StreamResponse(opened, timeout + ERROR_GRACE_S, merge=self._service.settings.merge_records == "true")

    def _refusal(self, http: HttpRequest, request: Request, way: Way) -> LmiError | None:
        """Why the request is not served, as far as that is known without its body."""
        if refused := self._access.refusal(http.headers):
            return refused
        too_large = refuse_body(http, longest_body(self._service.settings, http.headers))
        if too_large is not None:
            return too_large
        return self._service.refusal(request) if _opens(request, way) else None

    def begin(self, connection: Wire, head: Head, body: bytes) -> Answer | None:
        """A request to a dialect's path, or to that of all; None: it is to be asked by `serve`, which also refuses."""
        request_id = request_id_of(head.headers.get(REQUEST_ID_HEADER))
        request = Request(
            body=body,
            headers=head.headers,
            attributes=attributes_of(head.headers.items()),
            path=head.path,
            request_id=request_id,
        )
        service, settings = self._service, self._service.settings
        request = routed(request, service.dialects)
        way = request.way
        if (
            len(body) > longest_body(settings, head.headers)
            or not _opens(request, way)
            or (way.route is not None and request.method not in way.route.methods)
            or self._access.refusal(head.headers) is not None
            or service.refusal(request) is not None
        ):
            return None
        noted = partial(self.requests.note, "POST", head.path)
        timeout = settings.limits.request_timeout + ERROR_GRACE_S
        answer = Answer(connection, request_id, timeout, noted, merge=settings.merge_records == "true")
        connection.answer = answer
        try:
            self._streams.start(request, answer)
        except Exception:
            log.exception("request %s could not be opened", request_id)
            connection.answer = None
            answer.drop()
            return None
        return answer


ERROR_GRACE_S = 5.0
"""Seconds beyond option.request_timeout in which an error can still be sent."""
LATER = {"Retry-After": str(UnavailableError.retry_after)}


def _opens(request: Request, way: Way) -> bool:
    """Whether it is one for the model."""
    return not way.route.page if way.route else request.path == INVOCATIONS


def _path(path: str) -> str:
    """The path as dialects know it."""
    return INVOCATIONS if path.startswith("/predictions/") else path


def _refused(error: LmiError) -> HttpResponse:
    """In the form of the host's own routes."""
    return _http_response(Response(error.message.encode(), error.status, "text/plain; charset=utf-8", failure=error))


def _http_response(answer: Response) -> HttpResponse:
    headers = headers_of(answer)
    return HttpResponse(answer.body, answer.status, headers, headers.pop("Content-Type"))


def _http_answer(exchange: Exchange) -> HttpResponse:
    """That of one which has ended."""
    reply = exchange.call.reply
    headers = headers_of(reply)
    return HttpResponse(exchange.take_all(), reply.status, headers, headers.pop("Content-Type"))


def application(service: Service, access: Access | None = None, *, playground: bool = True) -> Starlette:
    """The ASGI application for a service that has been started, for those whom `access` lets in."""
    server = LocalServer(service, access := access or Access())
    routes = [
        HttpRoute("/ping", server.ping, methods=["GET"]),
        HttpRoute("/health", server.health, methods=["GET"]),
        HttpRoute("/metrics", server.metrics, methods=["GET"]),
        HttpRoute("/openapi.json", server.openapi, methods=["GET"]),
        *AdapterRoutes(service, access, server.bodies).routes(),
        cancel_route(service, access, server.bodies),
        *dialect_routes(service.dialects, server.serve),
    ]
    if playground and (files := file_routes(access)):
        # Behind the dialects' own: one of the user's may have the path.
        routes += [HttpRoute("/playground/setup.json", server.setup, methods=["GET"], include_in_schema=False), *files]
    middleware = [Middleware(OwnPaths)]
    if access.origins:
        # Without credentials: a page has to know the key, no cookie and no password of the browser's stands for it.
        origins, every = sorted(access.origins), ["*"]
        middleware.append(Middleware(CORSMiddleware, origins, METHODS, allow_headers=every, expose_headers=every))
    counted = Middleware(Counted, requests=server.requests)
    settings = service.settings
    if has_hooks(Path(settings.model_dir), os.environ):
        app = Starlette(routes=routes, middleware=middleware)
        return hooked(app, counted, server.lifespan, server.serve, access, settings)
    app = Starlette(routes=routes, lifespan=server.lifespan, middleware=[counted, *middleware])
    app.state.direct = server
    return app


METHODS = ("GET", "POST", "DELETE")
"""That routes have."""
