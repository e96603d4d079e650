"""Beam search and typical_p in LMI requests on every host."""

from __future__ import annotations

from typing import Any

import pytest

from ..demo.model import question
from ..kit.hosts.host import Host, client

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]


def body(prompt: str = "Tell me", /, **parameters: Any) -> dict[str, Any]:
    return {"inputs": prompt, "parameters": {"max_new_tokens": 12, "details": True, **parameters}}


def likelihood(sequence: dict[str, Any]) -> float:
    return float(sum(token["log_prob"] for token in sequence["tokens"]))


async def test_the_best_and_the_others(host: Host) -> None:
    """By length_penalty 0 the likeliest comes first, and it is no less likely than the greedy answer."""
    async with client(host) as http:
        found = (await http.post(body(num_beams=4, length_penalty=0, early_stopping="never"))).json()
        greedy = (await http.post(body())).json()
        few = (await http.post(body(num_beams=4, n=2, length_penalty=0, early_stopping="never"))).json()
    best, others = found["details"], found["details"]["best_of_sequences"]
    assert len(others) == 3
    assert best["generated_tokens"] == len(best["tokens"])
    assert best["finish_reason"] in ("length", "eos_token")
    assert "".join(token["text"] for token in best["tokens"]) == found["generated_text"]
    assert "best_of_sequences" not in greedy["details"]
    ranks = [likelihood(one) for one in (best, *others)]
    assert ranks == sorted(ranks, reverse=True)
    # The greedy answer is one of those that were looked at.
    assert ranks[0] >= likelihood(greedy["details"]) - 1e-4
    for one in others:
        assert set(one) == {"generated_text", "finish_reason", "generated_tokens", "tokens"}
        assert "".join(token["text"] for token in one["tokens"]) == one["generated_text"]
    assert few["generated_text"] == found["generated_text"]
    # Computed twice, and not always to the last bit.
    (other,) = few["details"]["best_of_sequences"]
    assert other["generated_text"] == others[0]["generated_text"]
    assert likelihood(other) == pytest.approx(likelihood(others[0]), abs=1e-4)


async def test_an_answer_that_the_model_knows(host: Host) -> None:
    """To its end, and to a stop string."""
    asked = question("plain")
    stop = asked.answer[7:12]
    async with client(host) as http:
        whole = (await http.post(body(asked.prompt, num_beams=3, max_new_tokens=100))).json()
        cut = (await http.post(body(asked.prompt, num_beams=3, max_new_tokens=100, stop_sequences=[stop]))).json()
    assert (whole["generated_text"], whole["details"]["finish_reason"]) == (asked.answer, "eos_token")
    assert cut["generated_text"] == asked.answer[: asked.answer.find(stop)]
    assert cut["details"]["finish_reason"] == "stop_sequence"


async def test_what_is_refused_by_name(host: Host) -> None:
    async with client(host) as http:
        streamed = await http.post({**body(num_beams=2), "stream": True})
        sampled = await http.post(body(num_beams=2, do_sample=True))
        many = await http.post(body(num_beams=11))
    assert {response.status_code for response in (streamed, sampled, many)} == {424}
    assert "parameters.num_beams: above 1 is not supported with streaming" in streamed.json()["error"]
    assert "parameters.do_sample: cannot be combined with parameters.num_beams above 1" in sampled.json()["error"]
    assert "parameters.num_beams: expected at most 10 beams (option.max_logprobs is 20" in many.json()["error"]


async def test_typical_p(host: Host) -> None:
    """It asks for sampling by itself, and with a seed it is the same every time."""
    async with client(host) as http:
        asked = [body(seed=4, temperature=2.0, max_new_tokens=40, typical_p=mass) for mass in (1.0, 0.3, 0.3)]
        plain, typical, again = [(await http.post(one)).json()["generated_text"] for one in asked]
    assert plain != typical == again
