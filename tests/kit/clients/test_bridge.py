"""The bridge that other tests call hosts through: what botocore reads of it is what a host sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import Any

import pytest
from botocore.exceptions import EventStreamError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from .bridge import Bridge, runtime, serving


async def invocations(request: Request) -> Response:
    """A host that repeats what it was told, or fails as the body asks."""
    body = await request.body()
    if body == b"break":
        return StreamingResponse(broken(), media_type="text/event-stream")
    if body == b"stall":
        return StreamingResponse(stalled(), media_type="text/event-stream")
    told = {name: value for name, value in request.headers.items() if name not in {"host", "user-agent"}}
    answer = {"headers": told, "body": body.decode(), "path": request.url.path}
    headers = {"X-Amzn-SageMaker-Custom-Attributes": "answer=1", "X-Other": "not passed on"}
    return JSONResponse(answer, 201, headers)


async def broken() -> AsyncIterator[bytes]:
    yield b"half a li"
    raise ConnectionResetError


async def stalled() -> AsyncIterator[bytes]:
    yield b"half a li"
    await asyncio.sleep(3600)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    host = Starlette(routes=[Route("/invocations", invocations, methods=["POST"])])
    with serving(host) as url, serving(Bridge(url, seed=1, timeout=1).app) as bridged:
        client = runtime(bridged)
        yield client
        client.close()


def test_a_whole_answer_and_the_headers_of_the_api(client: Any) -> None:
    answer = client.invoke_endpoint(
        EndpointName="any",
        Body=b"\xc3\xbc",
        ContentType="application/json; x=1",
        Accept="text/plain",
        CustomAttributes="dialect=lmi,a=b",
        SessionId="abc-1",
    )
    assert answer["ContentType"] == "application/json"
    assert answer["CustomAttributes"] == "answer=1"
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    assert "x-other" not in answer["ResponseMetadata"]["HTTPHeaders"]
    with answer["Body"] as body:
        told = json.load(body)
    assert told["path"] == "/invocations"
    assert told["body"] == "ü"
    headers = told["headers"]
    assert headers["content-type"] == "application/json; x=1"
    assert headers["accept"] == "text/plain"
    assert headers["x-amzn-sagemaker-custom-attributes"] == "dialect=lmi,a=b"
    assert headers["x-amzn-sagemaker-session-id"] == "abc-1"
    assert "authorization" not in headers


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"break", "the connection to the model was closed"), (b"stall", "the model did not answer in time")],
    ids=["broken", "stalled"],
)
def test_a_stream_that_ends_early_is_a_model_stream_error(client: Any, body: bytes, message: str) -> None:
    answer = client.invoke_endpoint_with_response_stream(EndpointName="any", Body=body)
    parts: list[bytes] = []
    with closing(answer["Body"]) as events, pytest.raises(EventStreamError) as caught:
        parts.extend(event["PayloadPart"]["Bytes"] for event in events)
    assert b"".join(parts) == b"half a li"
    # Of the two members of the error botocore keeps the message.
    assert caught.value.response["Error"] == {"Code": "ModelStreamError", "Message": message}
