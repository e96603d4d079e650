"""A prompt of sixteen megabytes and a body of half a million messages behind the real hosts, beside a stream."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ..demo.model import question
from ..kit.hosts.host import Host, client

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]

LONG = question("long")
STREAM: dict[str, Any] = {"inputs": LONG.prompt, "parameters": {"max_new_tokens": 200}, "stream": True}
HEAVY: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"inputs": "a " * 8_000_000}, "inputs: prompt is too long: more than "),
    "message": (
        {"messages": [{"role": "user", "content": "a " * 8_000_000}]},
        "messages: prompt is too long: more than ",
    ),
    "messages": ({"messages": [{"role": "user", "content": "a"}] * 450_000}, "the body: expected at most"),
}


@pytest.mark.parametrize("kind", HEAVY)
async def test_a_heavy_request_beside_streams(host: Host, kind: str) -> None:
    """It is refused, and the streams before it, beside it and behind it are whole."""
    body, told = HEAVY[kind]
    async with client(host) as http:
        before = asyncio.create_task(http.stream(STREAM))
        refused = asyncio.create_task(http.post(body))
        beside = await http.stream(STREAM)
        answer = await refused
        assert answer.status_code in (400, 424)
        assert told in answer.text
        for stream in (await before, beside, await http.stream(STREAM)):
            assert stream.documents[-1]["generated_text"] == LONG.answer
