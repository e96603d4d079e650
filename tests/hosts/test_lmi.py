"""LMI requests on every host: the local server, and the real DJL engine in rolling-batch and in async mode."""

from __future__ import annotations

import asyncio
import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from ..demo.model import QUESTIONS, question
from ..kit.hosts.host import Client, Host, Streamed, begun, client

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
    "not JSON": (b'{"inputs": ', "JSON"),
    "no inputs": (b'{"parameters": {}}', "inputs"),
    "max_new_tokens": (b'{"inputs": "x", "parameters": {"max_new_tokens": "many"}}', "parameters.max_new_tokens"),
    "temperature -1": (b'{"inputs": "x", "parameters": {"temperature": -1}}', "parameters.temperature"),
    "temperature NaN": (b'{"inputs": "x", "parameters": {"temperature": NaN}}', "parameters.temperature"),
    "long prompt": (b'{"inputs": "' + b"word " * 8000 + b'"}', "inputs"),
    "stop_sequences": (b'{"inputs": "x", "parameters": {"stop_sequences": 5}}', "parameters.stop_sequences"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_one_bad_request_among_63_fails_alone(host: Host, kind: str, stream: bool) -> None:
    content, named = BAD[kind]
    if stream:
        content = content.replace(b"{", b'{"stream": true, ', 1)
    good = body(ENDLESS, True, max_new_tokens=20, details=True)
    async with client(host) as http:
        goods = [asyncio.create_task(http.stream(good)) for _ in range(32)]
        refused = asyncio.create_task(http.post(content))
        goods += [asyncio.create_task(http.stream(good)) for _ in range(31)]
        answer = await refused
        streams = await asyncio.gather(*goods)
    assert answer.status_code == 424
    error = answer.json()["error"]
    assert named in error
    assert "\n" not in error
    for streamed in streams:
        assert streamed.status == 200
        assert len(streamed.documents) == 20
        assert streamed.documents[-1]["details"]["generated_tokens"] == 20
    assert len({joined(streamed) for streamed in streams}) == 1


async def both_ways(http: Client, prompt: str, **parameters: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The whole answer and the token lines of the same request, having seen that they agree."""
    parameters = {"details": True, **parameters}
    whole = (await http.post(body(prompt, **parameters))).json()
    streamed = await http.stream(body(prompt, True, **parameters))
    documents = streamed.documents
    last = documents[-1]
    assert joined(streamed) == last["generated_text"] == whole["generated_text"]
    assert "".join(token["text"] for token in whole["details"]["tokens"]) == whole["generated_text"]
    tokens = [document["token"] for document in documents]
    assert [token["id"] for token in tokens] == [token["id"] for token in whole["details"]["tokens"]]
    assert [token["text"] for token in tokens] == [token["text"] for token in whole["details"]["tokens"]]
    assert whole["details"]["finish_reason"] == last["details"]["finish_reason"]
    assert len(tokens) == whole["details"]["generated_tokens"] == last["details"]["generated_tokens"]
    return whole, tokens


async def test_every_question_is_answered_word_for_word(host: Host) -> None:
    async with client(host) as http:
        for asked in QUESTIONS:
            if asked.kind == "endless":
                continue
            whole, _ = await both_ways(http, asked.prompt, max_new_tokens=400)
            assert whole["generated_text"] == asked.answer
            assert whole["details"]["finish_reason"] == "eos_token"


async def test_characters_that_span_tokens(host: Host) -> None:
    asked = question("unicode")
    async with client(host) as http:
        _, tokens = await both_ways(http, asked.prompt, max_new_tokens=400)
        assert any(token["text"] == "" for token in tokens[:-1]), "no character spans tokens here"
        assert "\N{REPLACEMENT CHARACTER}" not in "".join(token["text"] for token in tokens)
        # Cut at every length, inside characters too.
        for length in range(1, 24):
            whole, _ = await both_ways(http, asked.prompt, max_new_tokens=length)
            assert asked.answer.startswith(whole["generated_text"])
            assert whole["details"]["generated_tokens"] == length


@pytest.mark.parametrize("include", [False, True], ids=["hidden", "included"])
@pytest.mark.parametrize("kind", ["unicode", "endless"])
async def test_stop_strings_that_span_tokens(host: Host, kind: str, include: bool) -> None:
    asked = question(kind)
    async with client(host) as http:
        text = (await http.post(body(asked.prompt, max_new_tokens=120))).json()["generated_text"]
        for start, length in [(2, 1), (5, 3), (9, 7), (17, 12)]:
            stop = text[start : start + length]
            whole, _ = await both_ways(
                http, asked.prompt, max_new_tokens=120, stop_sequences=[stop], include_stop_str_in_output=include
            )
            end = text.index(stop) + (len(stop) if include else 0)
            assert whole["generated_text"] == text[:end]
            assert whole["details"]["finish_reason"] == "stop_sequence"


async def test_a_stop_string_that_does_not_come_holds_nothing_back_at_the_end(host: Host) -> None:
    asked = question("unicode")
    stop = asked.answer[-2:] + "never"
    async with client(host) as http:
        whole, _ = await both_ways(http, asked.prompt, max_new_tokens=400, stop_sequences=[stop])
    assert whole["generated_text"] == asked.answer
    assert whole["details"]["finish_reason"] == "eos_token"


@pytest.mark.parametrize("skip", [True, False], ids=["skipped", "shown"])
async def test_special_tokens_in_the_text(host: Host, tokenizer: Any, skip: bool) -> None:
    """Ignoring the end of sequence makes the model write special tokens."""
    asked = QUESTIONS[0]
    async with client(host) as http:
        whole, tokens = await both_ways(
            http, asked.prompt, max_new_tokens=120, ignore_eos_token=True, skip_special_tokens=skip
        )
    special = set(tokenizer.all_special_ids)
    written = [token for token in tokens if token["id"] in special]
    assert written, "the model wrote no special token"
    assert all((token["text"] == "") == skip for token in written)
    decoded = tokenizer.decode([token["id"] for token in tokens], skip_special_tokens=skip)
    assert decoded.rstrip("\N{REPLACEMENT CHARACTER}") == whole["generated_text"]


async def test_the_end_of_sequence_has_a_line_without_text(host: Host, tokenizer: Any) -> None:
    async with client(host) as http:
        _, tokens = await both_ways(http, QUESTIONS[0].prompt, max_new_tokens=200, skip_special_tokens=False)
    assert tokens[-1]["id"] == tokenizer.eos_token_id
    assert tokens[-1]["text"] == ""


async def test_prefill_and_full_text(host: Host, tokenizer: Any) -> None:
    asked = QUESTIONS[0]
    async with client(host) as http:
        parameters = {"max_new_tokens": 4, "details": True, "decoder_input_details": True, "return_full_text": True}
        whole = (await http.post(body(asked.prompt, **parameters))).json()
    prefill = whole["details"]["prefill"]
    assert [token["id"] for token in prefill] == tokenizer(asked.prompt)["input_ids"]
    assert prefill[0]["log_prob"] is None
    assert all(math.isfinite(token["log_prob"]) for token in prefill[1:])
    assert "".join(token["text"] for token in prefill).endswith(asked.prompt)
    assert whole["generated_text"].startswith(asked.prompt)
    assert whole["details"]["inputs"] == asked.prompt


async def test_sampling_with_a_seed_repeats_itself(host: Host) -> None:
    """Alone, among its like, and beside others. (vLLM's CPU build keeps seeds only while all that runs has one.)"""
    parameters = {"max_new_tokens": 40, "temperature": 2.0, "ignore_eos_token": True}
    async with client(host) as http:

        async def text(seed: int) -> str:
            answer = await http.post(body("Tell me", seed=seed, **parameters))
            return str(answer.json()["generated_text"])

        alone = await text(7)
        beside = [
            asyncio.create_task(http.post(body(prompt, **{**parameters, "seed": 1, "top_k": likeliest})))
            for prompt, likeliest in itertools.product((ENDLESS, "Tell me"), (1, 0))
        ]
        together = await asyncio.gather(*(text(7) for _ in range(8)))
        await asyncio.gather(*beside)
        other = await text(8)
    assert set(together) == {alone}
    assert other != alone


async def test_the_answer_ends_at_the_context(host: Host, tokenizer: Any) -> None:
    prompt = ENDLESS
    room = 2048 - len(tokenizer(prompt)["input_ids"])
    async with client(host) as http:
        whole = (await http.post(body(prompt, max_new_tokens=5000, details=True))).json()
    assert whole["details"]["finish_reason"] == "length"
    assert whole["details"]["generated_tokens"] == room


async def test_an_adapter_is_refused_by_name(host: Host) -> None:
    async with client(host) as http:
        adapter = await http.post({"inputs": "x", "adapters": "poet"})
    assert adapter.status_code == 424
    assert "adapters" in adapter.json()["error"]
