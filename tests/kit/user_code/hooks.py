"""A model.py with hooks of model-hosting-container-standards, as its users write them."""

from collections.abc import Awaitable, Callable
from typing import Any

import model_hosting_container_standards.sagemaker as standards
from beside import STATUS
from fastapi import Request
from fastapi.responses import JSONResponse, Response
from model_hosting_container_standards.common.fastapi.middleware import custom_middleware


@standards.custom_ping_handler
async def ping(request: Request) -> Response:
    return Response(status_code=STATUS, content="mine")


@standards.custom_invocation_handler
@standards.stateful_session_manager()
@standards.inject_adapter_id("model")
async def invoke(request: Request) -> Response:
    body = await request.json()
    if body.get("mine"):
        return JSONResponse({"model": body.get("model")})
    return await request.app.state.invocations(request)


@standards.register_load_adapter_handler(request_shape={"lora_name": "body.name"})
async def load(data: Any, request: Request) -> Response:
    return Response(status_code=200, content=data.lora_name)


@custom_middleware("throttle")
async def throttle(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    response.headers["x-throttled"] = request.url.path
    return response
