"""Routes of the local server, and the paths of dialects; and what stands before paths in some requests' targets."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from ...formatters import DIALECTS, Dialect, Route
from ...formatters.routing import INVOCATIONS
from ..scraping.http_requests import ROUTE

__all__ = ["BY_BODY", "HttpRoute", "OwnPaths", "dialect_routes", "posted_paths"]

BY_BODY = (INVOCATIONS, "/predictions/{name}")
"""Those where the body decides the dialect."""


class HttpRoute(StarletteRoute):
    """Starlette's, which also says in the request's state which route it is."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The endpoint's turn."""
        scope["state"][ROUTE] = self.path_format
        await super().handle(scope, receive, send)


class _Rest(Convertor[str]):
    """What a Route's name in braces stands for. The `path` of Starlette's has no line break, and may be empty and hide
    a path that ends."""

    regex = "(?s:.+)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("rest", _Rest())


def dialect_routes(
    user_dialects: Sequence[Dialect], endpoint: Callable[[Request], Awaitable[Response]]
) -> list[HttpRoute]:
    """A route for each path of the dialects, ours and these, and those of all dialects."""
    methods: dict[str, set[str]] = {path: {"POST"} for path in BY_BODY}
    for known in (*user_dialects, *DIALECTS):
        for route in known.routes:
            methods.setdefault(_pattern(route), set()).update(route.methods)
    # Of paths that fit the first one is taken: those without a part that varies, then the most special.
    ordered = sorted(methods.items(), key=lambda pair: ("{" in pair[0], -len(pair[0])))
    return [HttpRoute(path, endpoint, methods=sorted(allowed)) for path, allowed in ordered]


def _pattern(route: Route) -> str:
    return route.path.replace("}", ":rest}")


def posted_paths() -> list[str]:
    """The paths of our dialects, and that of all, to which requests are posted and which are the same for each."""
    posted = {route.path for known in DIALECTS for route in known.routes if "POST" in route.methods}
    return [INVOCATIONS, *sorted(path for path in posted if "{" not in path)]


class OwnPaths:
    """Takes what is not ours from the beginning of targets:

    http://name/v1/models   as proxies are asked (RFC 9112, 3.2.2): the name is the one that the request is for,
                            whatever Host says
    /openai/v1/models       SageMaker's own route of OpenAI's API, .../endpoints/NAME/openai/v1/...
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application's turn."""
        if scope["type"] == "http":
            if not scope["path"].startswith("/") and (found := URL.match(scope["raw_path"])):
                path = scope["raw_path"][found.end() :] or b"/"
                headers = [(b"host", found[1]), *(pair for pair in scope["headers"] if pair[0] != b"host")]
                scope = {**scope, "path": unquote(path.decode("ascii")), "raw_path": path, "headers": headers}
            if scope["path"].startswith("/openai/v1/"):
                scope = {**scope, "path": scope["path"].removeprefix("/openai")}
        await self._app(scope, receive, send)


URL = re.compile(rb"https?://([^/]*)", re.IGNORECASE)
