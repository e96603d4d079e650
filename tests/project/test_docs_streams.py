"""The reader of streams in docs/clients.md, on streams that break: it never takes a broken one for a whole one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from ..kit.clients.bridge import Bridge, found_by, serving
from ..kit.clients.scripts import OURS, run_python
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


CASES: dict[str, tuple[list[bytes], str | None]] = {
    "whole": ([TOKEN, LAST], None),
    "killed worker": ([TOKEN, JAVAS], "Inference Engine Failure"),
    "killed at once": ([JAVAS], "Inference Engine Failure"),
    "engine's death": ([TOKEN, OURS_LAST], "the engine ended"),
    "cut off": ([TOKEN, TOKEN[:20]], "JSONDecodeError"),
}
"""What is streamed, and what the reader raises."""
# In one process: boto3's import takes longer than all of them.
AGAIN = """
import contextlib, io, json, sys
for _ in range(int(sys.argv[2])):
    said, raised = io.StringIO(), None
    try:
        with contextlib.redirect_stdout(said):
            exec(sys.argv[1], {})
    except BaseException as error:
        raised = repr(error)
    print(json.dumps([said.getvalue(), raised]))
"""


@pytest.fixture(scope="module")
def read() -> dict[str, tuple[str, str | None]]:
    """By case, what the reader has written and raised."""
    streams = iter(chunks for chunks, _ in CASES.values())

    async def parts(chunks: list[bytes]) -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def answer(_request: Request) -> StreamingResponse:
        return StreamingResponse(parts(next(streams)), media_type="application/jsonlines")

    host = Starlette(routes=[Route("/invocations", answer, methods=["POST"])])
    with serving(host) as host_url, serving(Bridge(host_url, seed=5).app) as url:
        printed = run_python(OURS, ["-c", AGAIN, READER, str(len(CASES))], found_by(url))
    return dict(zip(CASES, map(json.loads, printed.splitlines()), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_a_stream(read: dict[str, tuple[str, str | None]], case: str) -> None:
    written, raised = read[case]
    said = CASES[case][1]
    if said is None:
        assert (written, raised) == ("Once more\n", None)
    else:
        assert raised is not None
        assert said in raised
