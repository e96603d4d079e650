"""Several sequences for one prompt on every host: n and best_of (docs/decisions.md: Several sequences).

And the likeliest tokens in each one's place: logprobs, prompt_logprobs.
"""

from __future__ import annotations

from typing import Any

import pytest

from ..kit.hosts.host import Host, client

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]


def body(**parameters: Any) -> dict[str, Any]:
    common = {"max_new_tokens": 12, "temperature": 2.0, "seed": 5, "details": True}
    return {"inputs": "Tell me", "parameters": {**common, **parameters}}


def likelihood(sequence: dict[str, Any]) -> float:
    return float(sum(token["log_prob"] for token in sequence["tokens"]))


@pytest.mark.parametrize(("asked", "shown"), [({"n": 3}, 3), ({"best_of": 3}, 3), ({"n": 2, "best_of": 4}, 2)], ids=str)
async def test_the_likeliest_and_the_others(host: Host, asked: dict[str, int], shown: int) -> None:
    """The same seeds alone and together: sequence i has seed + i, whatever comes of the ranking."""
    async with client(host) as http:
        several = (await http.post(body(**asked))).json()
        alone = [(await http.post(body(seed=5 + index))).json() for index in range(max(asked.values()))]
    best, others = several["details"], several["details"]["best_of_sequences"]
    assert len(others) == shown - 1
    assert likelihood(best) >= likelihood(others[0])
    assert all("".join(token["text"] for token in one["tokens"]) == one["generated_text"] for one in others)
    ranked = sorted(alone, key=lambda answer: -likelihood(answer["details"]))
    assert [several["generated_text"], *(one["generated_text"] for one in others)] == [
        answer["generated_text"] for answer in ranked[:shown]
    ]
    assert len({answer["generated_text"] for answer in alone}) > 1


async def test_streaming_is_refused_by_name(host: Host) -> None:
    async with client(host) as http:
        refused = await http.post({**body(n=2), "stream": True})
    assert refused.status_code == 424
    assert "parameters.n: above 1 is not supported with streaming" in refused.json()["error"]


async def test_the_likeliest_tokens(host: Host) -> None:
    """Whole and streamed alike, and where they are not asked for nothing of them."""
    asked = body(temperature=0, logprobs=3, prompt_logprobs=2)
    plain = body(temperature=0, decoder_input_details=True)
    async with client(host) as http:
        whole = (await http.post(asked)).json()["details"]
        streamed = await http.stream({**asked, "stream": True})
        bare = (await http.post(plain)).json()["details"]
        too_many = await http.post(body(logprobs=21))
    lines = streamed.documents
    likely, prompt = whole.pop("top_tokens"), whole.pop("prompt_logprobs")
    assert whole == bare
    assert [len(top) for top in likely] == [3] * whole["generated_tokens"]
    assert [top[0]["id"] for top in likely] == [token["id"] for token in whole["tokens"]]
    assert [line["top_tokens"] for line in lines] == likely
    assert len(prompt) == len(whole["prefill"])
    assert lines[-1]["details"]["prompt_logprobs"] == prompt
    assert too_many.status_code == 424
    assert "logprobs" in too_many.json()["error"]
