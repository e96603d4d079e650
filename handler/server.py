"""The local server: a model directory on a laptop, with the routes that SageMaker calls.

    GET  /ping                 200 while the engine is healthy, else 503
    POST /invocations          any dialect, by the body
    POST /predictions/{name}   the same

It serves what the DJL hosts serve, through the same core; unlike them it sends any status and body, and it learns
when a client goes away, at which the engine's work for it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ..formatters import Answer, Request
from .asynchronous import AsyncService, Stream
from .headers import ATTRIBUTES_HEADER, attributes_of
from .service import Service

__all__ = ["application"]

log = logging.getLogger(__name__)


class StreamResponse(Response):
    """Sends a stream's records, each in an HTTP chunk of its own; ends the exchange when the client goes away."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs until the last record is sent or the client has gone."""
        with self._stream:
            sending = asyncio.ensure_future(self._send_all(send))
            leaving = asyncio.ensure_future(_disconnected(receive))
            done, _ = await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            if sending in done:
                sending.result()

    async def _send_all(self, send: Send) -> None:
        stream = self._stream
        exchange = stream.exchange
        await stream.ready()
        reply = exchange.call.reply
        headers = {"content-type": reply.content_type, **reply.headers}
        whole = exchange.finished and len(exchange.records) <= 1
        if whole:
            body = exchange.records.popleft() if exchange.records else b""
            await send(_start(reply.status, {**headers, "content-length": str(len(body))}))
            await send({"type": "http.response.body", "body": body})
            return
        await send(_start(reply.status, headers))
        async for record in stream.records():
            await send({"type": "http.response.body", "body": record, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _start(status: int, headers: dict[str, str]) -> dict[str, object]:
    pairs = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": pairs}


async def _disconnected(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


class LocalServer:
    """The routes of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._streams: AsyncService

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Ties the service to the event loop that the server runs on."""
        self._streams = AsyncService(self._service)
        yield

    async def ping(self, _request: HttpRequest) -> Response:
        """SageMaker's health check."""
        if self._service.engine.healthy:
            return JSONResponse({"status": "Healthy"})
        return JSONResponse({"status": "Unhealthy"}, 503)

    async def invocations(self, http: HttpRequest) -> Response:
        """A request in any dialect."""
        request = Request(
            body=await http.body(),
            headers=dict(http.headers),
            query=dict(http.query_params),
            attributes=attributes_of(http.headers.get(ATTRIBUTES_HEADER, "")),
            path=http.url.path,
            request_id=http.headers.get("x-request-id") or str(uuid.uuid4()),
        )
        opened = self._streams.open(request)
        if isinstance(opened, Answer):
            return Response(opened.body, opened.status, dict(opened.headers), opened.content_type)
        return StreamResponse(opened)


def application(service: Service) -> Starlette:
    """The ASGI application for a service that has been started."""
    server = LocalServer(service)
    routes = [
        Route("/ping", server.ping, methods=["GET"]),
        Route("/invocations", server.invocations, methods=["POST"]),
        Route("/predictions/{name}", server.invocations, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=server.lifespan)
