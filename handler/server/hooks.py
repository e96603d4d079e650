"""Hooks of AWS's library for model containers (model-hosting-container-standards 0.1.16) that a model directory has.

    model.py      its decorators: handlers of /ping and /invocations, of adapters and sessions, middleware
    variables     CUSTOM_FASTAPI_..., CUSTOM_PRE_PROCESS, CUSTOM_POST_PROCESS (model_code.py has them)

    load --before the engine starts--> the library has the user's functions
    hooked --> its routes go before ours, its middleware stands around all

Where there are none nothing of the library, and no FastAPI, is imported. A handler may have ours serve the request:
`await request.app.state.invocations(request)`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...model.errors import OptionError
from ...model.options import Settings
from ..admission import longest_body, too_large
from ..user_code.loading import on_path, shown
from .access import Access
from .connections.connection import KEY

__all__ = ["hooked", "load"]

log = logging.getLogger(__name__)

PATH_VARIABLE = "SAGEMAKER_MODEL_PATH"
"""Where the library looks for the file."""


@contextmanager
def _own_logging() -> Iterator[None]:
    """The library sets the levels of the root logger and its handlers when it is imported: they stay as they were."""
    root = logging.getLogger()
    level, levels = root.level, [(handler, handler.level) for handler in root.handlers]
    try:
        yield
    finally:
        root.setLevel(level)
        for handler, before in levels:
            handler.setLevel(before)


def load(directory: Path) -> None:
    """Imports the library, and by it the user's file; raises OptionError with what failed."""
    os.environ[PATH_VARIABLE] = str(directory)
    on_path(directory)
    try:
        with _own_logging():
            from model_hosting_container_standards.sagemaker.sagemaker_loader import SageMakerFunctionLoader

            SageMakerFunctionLoader.get_function_loader()
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("model_hosting_container_standards"):
            raise OptionError(f"model.py: {shown(error)}", "model.py") from error
        why = "the package model-hosting-container-standards, whose hooks there are, is not installed"
        raise OptionError(f"model.py: {why}", "model.py") from None
    except Exception as error:
        log.exception("model.py failed")
        raise OptionError(f"model.py: {shown(error)}", "model.py") from error


def hooked(
    app: Starlette,
    counted: Middleware,
    lifespan: Callable[..., Any],
    serve: Callable[[Request], Awaitable[Response]],
    access: Access,
    settings: Settings,
) -> Starlette:
    """The application with what `load` has found around it; `serve` is our own endpoint of /invocations.

    `counted` counts requests, those to the hooks too.

    Requests to the hooks need the key, but for /ping, and their bodies have the same limit as others; what else becomes
    of them is the user's. Raises OptionError for a function that a variable names and nobody has.
    """
    from fastapi import FastAPI
    from model_hosting_container_standards.sagemaker import bootstrap

    outer: Starlette = FastAPI(openapi_url=None, lifespan=lifespan)
    outer.state.invocations = serve
    found = _Found()
    # Before the library makes the stack of middleware, to which nothing can be added then.
    outer.add_middleware(_Guard, found=found, access=access, settings=settings)
    try:
        bootstrap(outer)
    except Exception as error:
        log.exception("the hooks of model-hosting-container-standards failed")
        raise OptionError(f"hooks of model-hosting-container-standards: {shown(error)}") from error
    found.middleware = len(outer.user_middleware) > 1
    found.paths = tuple({str(getattr(route, "path", "")).partition("{")[0] for route in outer.routes})
    log.info("hooks: %s%s", ", ".join(found.paths) or "no path", ", and middleware" * found.middleware)
    outer.mount("", app)
    # Around all of it.
    outer.user_middleware.insert(0, counted)
    outer.middleware_stack = outer.build_middleware_stack()
    return outer


@dataclass
class _Found:
    """What there is of hooks."""

    paths: tuple[str, ...] = ()
    """How the paths begin that the user's functions serve."""
    middleware: bool = False


class _Guard:
    """Judges requests to the hooks' paths, as ours are judged by what serves them."""

    def __init__(self, app: ASGIApp, *, found: _Found, access: Access, settings: Settings) -> None:
        self._app = app
        self._found = found
        self._access = access
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._found.middleware:
            # Nothing may be written past it.
            scope.get("state", {}).pop(KEY, None)
        path = scope["path"]
        if path.startswith(self._found.paths):
            request = Request(scope)
            if path != "/ping" and (refused := self._access.refusal(request.headers)):
                await Response(refused.message, refused.status, media_type="text/plain")(scope, receive, send)
                return
            receive = _bounded(receive, longest_body(self._settings, request.headers))
        await self._app(scope, receive, send)


def _bounded(receive: Receive, longest: int) -> Receive:
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > longest:
            error = too_large(longest)
            raise HTTPException(error.status, error.message, {"Connection": "close"})
        return message

    return bounded
