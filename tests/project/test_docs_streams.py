"""The reader of streams in docs/clients.md, on streams that break: it never takes a broken one for a whole one."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from ..kit.clients.bridge import Bridge, serving
from ..kit.clients.scripts import OURS
from ..kit.pages import blocks_of
from ..kit.paths import DOCS

(READER,) = [
    block.text
    for block in blocks_of(DOCS / "clients.md")
    if block.language == "python" and "invoke_endpoint_with_response_stream" in block.text
]
TOKEN = b'{"token":{"id":1,"text":"Once","log_prob":-0.1}}\n'
LAST = b'{"token":{"id":1,"text":" more","log_prob":-0.1},"generated_text":"Once more"}\n'
JAVAS = (
    b'{"code":500,"message":"Inference Engine Failure","properties":{},"content":{"keys":[],"values":[]},'
    b'"cancelled":false}'
)
OURS_LAST = b'{"token":{"id":-1,"text":""},"generated_text":null,"details":null,"error":"the engine ended"}\n'


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        ([TOKEN, LAST], None),
        ([TOKEN, JAVAS], "Inference Engine Failure"),
        ([JAVAS], "Inference Engine Failure"),
        ([TOKEN, OURS_LAST], "the engine ended"),
        ([TOKEN, TOKEN[:20]], "JSONDecodeError"),
    ],
    ids=["whole", "killed worker", "killed at once", "engine's death", "cut off"],
)
def test_a_stream(chunks: list[bytes], said: str | None) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def answer(_request: Request) -> StreamingResponse:
        return StreamingResponse(parts(), media_type="application/jsonlines")

    host = Starlette(routes=[Route("/invocations", answer, methods=["POST"])])
    with serving(host) as host_url, serving(Bridge(host_url, seed=5).app) as url:
        environment = {
            "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": url,
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "*",
        }
        done = subprocess.run(
            [str(OURS), "-c", READER], env=environment, check=False, capture_output=True, text=True, timeout=60
        )
    if said is None:
        assert (done.returncode, done.stdout) == (0, "Once more\n"), done.stderr
    else:
        assert done.returncode == 1
        assert said in done.stderr
