"""LMI requests on every host: the local server, and the real DJL engine in rolling-batch and in async mode."""

from __future__ import annotations

import asyncio
import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from ..demo.model import QUESTIONS, question
from ..kit.hosts.host import Host, Streamed, begun, client
from ..kit.hosts.pool import STREAMING

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]

ENDLESS = question("endless").prompt


def body(prompt: str, stream: bool = False, /, **parameters: Any) -> dict[str, Any]:
    return {"inputs": prompt, "parameters": parameters, "stream": stream}


def joined(streamed: Streamed) -> str:
    return "".join(document["token"]["text"] for document in streamed.documents)


@pytest.fixture(scope="session")
def tokenizer(demo_model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(demo_model)


@pytest.mark.contract
@STREAMING
async def test_64_streams_of_100_tokens_lose_nothing(host: Host, tokenizer: Any) -> None:
    prompts = [question.prompt for question, _ in zip(itertools.cycle(QUESTIONS), range(64), strict=False)]
    parameters = {"max_new_tokens": 100, "ignore_eos_token": True, "details": True}
    async with client(host) as http:
        streams = await asyncio.gather(*(http.stream(body(prompt, True, **parameters)) for prompt in prompts))
        wholes = await asyncio.gather(*(http.post(body(prompt, **parameters)) for prompt in prompts))
    for prompt, streamed, whole in zip(prompts, streams, wholes, strict=True):
        assert streamed.status == 200
        assert streamed.content_type.startswith("application/jsonlines")
        documents = streamed.documents
        assert len(documents) == 100
        last = documents[-1]
        assert last["details"] == {"finish_reason": "length", "generated_tokens": 100, "inputs": prompt}
        assert joined(streamed) == last["generated_text"]
        ids = [document["token"]["id"] for document in documents]
        decoded = tokenizer.decode(ids, skip_special_tokens=True)
        # A character that the hundredth token leaves unfinished is no text yet.
        assert decoded.rstrip("\N{REPLACEMENT CHARACTER}") == last["generated_text"]
        assert all(math.isfinite(document["token"]["log_prob"]) for document in documents)
        assert whole.status_code == 200
        answer = whole.json()
        assert answer["generated_text"] == last["generated_text"]
        assert [token["id"] for token in answer["details"]["tokens"]] == ids
        assert answer["details"]["generated_tokens"] == 100


@pytest.mark.contract
@STREAMING
async def test_a_late_request_is_served_while_others_generate(host: Host) -> None:
    """Asserted by the order of events: the late one's first token comes before the end of any of the others."""
    async with client(host) as http:
        running = [Streamed() for _ in range(8)]
        tasks = [
            asyncio.create_task(http.stream(body(ENDLESS, True, max_new_tokens=600), streamed)) for streamed in running
        ]
        await begun(running, lines=3)
        late = await http.stream(body(ENDLESS, True, max_new_tokens=3))
        await asyncio.gather(*tasks)
    assert len(late.documents) == 3
    for streamed in running:
        assert len(streamed.documents) == 600
        assert streamed.ticks[2] < late.ticks[0] < streamed.ticks[599]


BAD = {
    "in the dialect": (b'"inputs": "x", "parameters": {"temperature": -1}}', "parameters.temperature"),
    "in the engine's process": (b'"inputs": "' + b"word " * 8000 + b'"}', "inputs"),
    "not JSON": (b'"inputs": ', "JSON"),
}
"""Where each is found, the body without its beginning, and what the error names."""


async def test_bad_requests_among_good_ones_fail_alone(host: Host) -> None:
    good = body(ENDLESS, True, max_new_tokens=20, details=True)
    asked = [(start + rest, named) for rest, named in BAD.values() for start in (b"{", b'{"stream": true, ')]
    async with client(host) as http:
        goods = [asyncio.create_task(http.stream(good)) for _ in range(32)]
        refused = [asyncio.create_task(http.post(content)) for content, _ in asked]
        goods += [asyncio.create_task(http.stream(good)) for _ in range(26)]
        answers = await asyncio.gather(*refused)
        streams = await asyncio.gather(*goods)
    for answer, (_, named) in zip(answers, asked, strict=True):
        assert answer.status_code == 424
        error = answer.json()["error"]
        assert named in error
        assert "\n" not in error
    for streamed in streams:
        assert streamed.status == 200
        assert len(streamed.documents) == 20
        assert streamed.documents[-1]["details"]["generated_tokens"] == 20
    assert len({joined(streamed) for streamed in streams}) == 1
