"""An endpoint of SageMaker's that answers at once, for scripts whose requests to it are not what is tested."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from .bridge import Bridge, serving


@contextmanager
def answering_endpoint() -> Iterator[str]:
    """The URL of SageMaker's runtime API before a container that answers all but what has no messages."""
    app = Starlette(routes=[Route("/invocations", _answer, methods=["POST"])])
    with serving(app) as container, serving(Bridge(container).app) as url:
        yield url


async def _answer(request: Request) -> Response:
    body = await request.json()
    if not body.get("messages"):
        return JSONResponse({"error": "messages: expected some"}, 400)
    if body.get("stream"):
        return StreamingResponse(iter(["data: {}\n\n", "data: [DONE]\n\n"]), media_type="text/event-stream")
    return JSONResponse({"whole": True})
