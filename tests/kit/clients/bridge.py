"""SageMaker's runtime API in front of a host, so that boto3's `sagemaker-runtime` client can call it.

    boto3 -> Bridge -> POST /invocations of a host

    POST /endpoints/{name}/invocations                    invoke_endpoint
    POST /endpoints/{name}/invocations-response-stream    invoke_endpoint_with_response_stream

What it says is in botocore's model of the service (sagemaker-runtime, 2017-05-13): the names of headers, ModelError
with the host's status and body for every answer that is not 2xx, ModelStreamError for a stream that breaks. Streams are
frames of the encoding application/vnd.amazon.eventstream (Smithy, Amazon Event Stream Specification); botocore reads
them, checksums included.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import boto3
import httpx
import uvicorn
from botocore.config import Config
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

EVENT_STREAM = "application/vnd.amazon.eventstream"
PREFIX = "x-amzn-sagemaker-"
STRING = 7
"""The type of a frame's header whose value is text."""
SIZES = (1, 1, 1, 2, 3, 5, 8, 13)
"""Of the parts of a stream that is cut, in bytes: most end inside a line, many inside a character."""


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One message of an event stream.

    Big-endian: total length, length of the headers, CRC-32 of these two; headers; payload; CRC-32 of all before it.
    """
    block = b""
    for name, value in headers.items():
        encoded = value.encode()
        block += struct.pack(f">B{len(name)}sBH", len(name), name.encode(), STRING, len(encoded)) + encoded
    prelude = struct.pack(">II", 16 + len(block) + len(payload), len(block))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + block + payload
    return message + struct.pack(">I", zlib.crc32(message))


def payload_part(payload: bytes) -> bytes:
    """The frame of a piece of the answer."""
    kinds = {":event-type": "PayloadPart", ":content-type": "application/octet-stream", ":message-type": "event"}
    return frame(kinds, payload)


def stream_error(code: str, message: str) -> bytes:
    """The frame that tells that the answer goes on no further; `code` as in ModelStreamError."""
    kinds = {
        ":exception-type": "ModelStreamError",
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return frame(kinds, json.dumps({"Message": message, "ErrorCode": code}).encode())


async def cut(chunks: AsyncIterator[bytes], seed: int) -> AsyncIterator[bytes]:
    """The same bytes in parts of other sizes, which depend on the seed alone, whatever the sizes of the chunks."""
    sizes = random.Random(seed)
    size = sizes.choice(SIZES)
    rest = b""
    broken: httpx.TransportError | None = None
    try:
        async for chunk in chunks:
            rest += chunk
            while len(rest) >= size:
                yield rest[:size]
                rest = rest[size:]
                size = sizes.choice(SIZES)
    except httpx.TransportError as error:
        broken = error
    if rest:
        yield rest
    if broken:
        raise broken


class Bridge:
    """The runtime API in front of one host, whatever the endpoint's name; an ASGI application.

    seed: how streams are cut; None leaves every chunk of the host a part of its own.
    """

    def __init__(self, host_url: str, seed: int | None = None, timeout: float = 120.0) -> None:
        self._url = f"{host_url}/invocations"
        self._seed = seed
        self._timeout = timeout
        self._http: httpx.AsyncClient
        self.sent = b""
        """What the host answered last, as it came."""
        self.app: ASGIApp = Starlette(
            routes=[
                Route("/endpoints/{name}/invocations", self.invoke, methods=["POST"]),
                Route("/endpoints/{name}/invocations-response-stream", self.stream, methods=["POST"]),
            ],
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with httpx.AsyncClient(verify=False, timeout=self._timeout) as self._http:
            yield

    async def invoke(self, request: Request) -> Response:
        """A whole answer."""
        answer = await self._send(request)
        self.sent = await answer.aread()
        if not answer.is_success:
            return model_error(answer)
        headers = returned(answer)
        if "content-type" in answer.headers:
            headers["content-type"] = answer.headers["content-type"]
        return Response(self.sent, headers=headers)

    async def stream(self, request: Request) -> Response:
        """An answer in parts. The content type has a header of its own: the body is an event stream."""
        answer = await self._send(request)
        if not answer.is_success:
            self.sent = await answer.aread()
            return model_error(answer)
        headers = returned(answer)
        headers["x-amzn-sagemaker-content-type"] = answer.headers.get("content-type", "")
        return StreamingResponse(self._frames(answer), headers=headers, media_type=EVENT_STREAM)

    async def _send(self, request: Request) -> httpx.Response:
        """The request as the container gets it: of the caller's headers only those that the API has."""
        given = request.headers
        headers = {name: value for name, value in given.items() if name.startswith(PREFIX)}
        for name in ("content-type", "accept"):
            # The streaming operation has these among its own.
            if value := headers.pop(PREFIX + name, None) or given.get(name):
                headers[name] = value
        outgoing = self._http.build_request("POST", self._url, content=await request.body(), headers=headers)
        return await self._http.send(outgoing, stream=True)

    async def _frames(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        self.sent = b""
        try:
            parts = self._tapped(answer)
            async for part in parts if self._seed is None else cut(parts, self._seed):
                yield payload_part(part)
        except httpx.ReadTimeout:
            yield stream_error("ModelInvocationTimeExceeded", "the model did not answer in time")
        except httpx.TransportError:
            yield stream_error("StreamBroken", "the connection to the model was closed")
        finally:
            await answer.aclose()

    async def _tapped(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        async for chunk in answer.aiter_raw():
            self.sent += chunk
            yield chunk


def returned(answer: httpx.Response) -> dict[str, str]:
    """The headers of a host's answer that reach the caller, and the one that the service adds."""
    kept = {name: value for name, value in answer.headers.items() if name.startswith(PREFIX)}
    return {**kept, "x-amzn-invoked-production-variant": "AllTraffic"}


def model_error(answer: httpx.Response) -> Response:
    """What the service makes of a host's answer that is not 2xx: its own 424 with the host's status and body inside."""
    kind = "client" if answer.is_client_error else "server"
    body = {
        "Message": f'Received {kind} error ({answer.status_code}) from primary with message "{answer.text}".',
        "OriginalStatusCode": answer.status_code,
        "OriginalMessage": answer.text,
    }
    return JSONResponse(body, 424, {"x-amzn-errortype": "ModelError"})


@contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """An ASGI application on a port of the loopback interface, in a thread; gives its URL."""
    config = uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 30
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError("the server of the test did not start")
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)


def found_by(url: str) -> dict[str, str]:
    """The variables by which boto3 finds a bridge, and nothing else of AWS."""
    return {
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": url,
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }


def runtime(url: str) -> Any:
    """boto3's client of the runtime API at `url`. It asks once: what fails is not tried again."""
    session = boto3.Session(aws_access_key_id="none", aws_secret_access_key="none", region_name="us-east-1")
    config = Config(retries={"total_max_attempts": 1}, read_timeout=120, proxies={})
    return session.client("sagemaker-runtime", endpoint_url=url, config=config)
