"""TGI's dialect on every host: the local server, and the real DJL engine in rolling-batch and in async mode."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from typing import Any

import httpx
import jsonschema
import pytest

from ..demo.model import JSON_SCHEMA, QUESTIONS, question
from ..kit.answers.tgi import ERROR, check, lines, whole
from ..kit.djl.hosting import DjlHost
from ..kit.hosts.host import Host

pytestmark = [pytest.mark.engine, pytest.mark.djl, pytest.mark.anyio]

HEADERS = {"content-type": "application/json", "x-amzn-sagemaker-custom-attributes": "dialect=tgi"}
ENDLESS = question("endless").prompt


@pytest.fixture
async def http(host: Host) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=host.url, headers=HEADERS, timeout=120) as client:
        yield client


@pytest.fixture(scope="session")
def tokenizer(demo_model: Any) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(demo_model)


async def answer(http: httpx.AsyncClient, prompt: str, /, **parameters: Any) -> dict[str, Any]:
    """A whole answer with details."""
    response = await http.post("/invocations", json={"inputs": prompt, "parameters": {"details": True, **parameters}})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("application/json")
    (made,) = response.json()
    check(made, whole(details=True, inputs=True, top="top_n_tokens" in parameters))
    details = made["details"]
    assert details["generated_tokens"] == len(details["tokens"])
    assert response.headers["x-generated-tokens"] == str(details["generated_tokens"])
    assert details["inputs"] == prompt
    return dict(made)


async def stream(http: httpx.AsyncClient, prompt: str, /, **parameters: Any) -> list[dict[str, Any]]:
    """The lines of a streamed answer."""
    body = {"inputs": prompt, "parameters": parameters, "stream": True}
    response = await http.post("/invocations", json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("\n\n")
    events = response.text.removesuffix("\n\n").split("\n\n")
    assert all(event.startswith("data: {") and "\n" not in event for event in events)
    made = [json.loads(event.removeprefix("data: ")) for event in events]
    line, last = lines(details=True, inputs=True, top="top_n_tokens" in parameters)
    for one in made[:-1]:
        check(one, line)
    check(made[-1], last)
    assert [one["index"] for one in made] == list(range(1, len(made) + 1))
    assert made[-1]["details"]["generated_tokens"] == len(made)
    return made


async def both(http: httpx.AsyncClient, prompt: str, /, **parameters: Any) -> dict[str, Any]:
    """The whole answer, which the streamed one agrees with."""
    made = await answer(http, prompt, **parameters)
    streamed = await stream(http, prompt, **parameters)
    last = streamed[-1]
    assert last["generated_text"] == made["generated_text"]
    assert last["details"]["finish_reason"] == made["details"]["finish_reason"]
    shown = [(one["token"]["id"], one["token"]["text"], one["token"]["special"]) for one in streamed]
    assert shown == [(token["id"], token["text"], token["special"]) for token in made["details"]["tokens"]]
    return made


@pytest.mark.parametrize(
    "asked", [one for one in QUESTIONS if one.kind in {"plain", "long", "unicode"}], ids=lambda one: one.prompt
)
async def test_an_answer_to_its_end(http: httpx.AsyncClient, tokenizer: Any, asked: Any) -> None:
    """Without max_new_tokens it goes on to the end of sequence, which is shown as a special token."""
    made = await both(http, asked.prompt)
    details = made["details"]
    assert (made["generated_text"], details["finish_reason"]) == (asked.answer, "eos_token")
    assert (details["seed"], details["prefill"]) == (None, [])
    *tokens, last = details["tokens"]
    assert (last["id"], last["text"], last["special"]) == (tokenizer.eos_token_id, tokenizer.eos_token, True)
    assert "".join(token["text"] for token in tokens) == asked.answer
    assert not any(token["special"] for token in tokens)
    assert all(math.isfinite(token["logprob"]) for token in details["tokens"])
    (streamed,) = [one["details"] for one in await stream(http, asked.prompt) if one["details"]]
    assert streamed["input_length"] == len(tokenizer(asked.prompt)["input_ids"])


async def test_every_special_token_is_shown_as_what_it_is(http: httpx.AsyncClient, tokenizer: Any) -> None:
    """Ignoring the end of sequence makes the model write special tokens in the middle."""
    made = await both(http, QUESTIONS[0].prompt, ignore_eos_token=True, max_new_tokens=120)
    tokens = made["details"]["tokens"]
    written = [token for token in tokens if token["special"]]
    assert written
    assert all(token["text"] == tokenizer.decode([token["id"]]) for token in written)
    assert all(token["id"] in tokenizer.all_special_ids for token in written)
    text = "".join(token["text"] for token in tokens if not token["special"])
    assert text == made["generated_text"]
    assert made["details"]["finish_reason"] == "length"


@pytest.mark.parametrize("kind", ["unicode", "endless"])
async def test_the_text_ends_with_the_stop_string(http: httpx.AsyncClient, kind: str) -> None:
    prompt = question(kind).prompt
    text = (await answer(http, prompt, max_new_tokens=120))["generated_text"]
    for start, length in [(2, 1), (9, 7)]:
        stop = text[start : start + length]
        made = await both(http, prompt, max_new_tokens=120, stop=["never", stop])
        assert made["generated_text"] == text[: text.index(stop) + len(stop)]
        assert made["details"]["finish_reason"] == "stop_sequence"
        without = await answer(http, prompt, max_new_tokens=120, stop=[stop], include_stop_str_in_output=False)
        assert without["generated_text"] == text[: text.index(stop)]


async def test_the_likeliest_tokens(http: httpx.AsyncClient, tokenizer: Any) -> None:
    made = await answer(http, QUESTIONS[0].prompt, top_n_tokens=4)
    streamed = await stream(http, QUESTIONS[0].prompt, top_n_tokens=4)
    details = made["details"]
    shown = [[token["id"] for token in top] for top in details["top_tokens"]]
    assert [[token["id"] for token in one["top_tokens"]] for one in streamed] == shown
    for token, top in zip(details["tokens"], details["top_tokens"], strict=True):
        assert len(top) == 4
        assert [one["logprob"] for one in top] == sorted((one["logprob"] for one in top), reverse=True)
        # Greedy: the chosen one is the likeliest.
        assert (top[0]["id"], top[0]["logprob"]) == (token["id"], token["logprob"])
        assert all(one["special"] is (one["id"] in tokenizer.all_special_ids) for one in top)
        assert all(one["text"] == tokenizer.decode([one["id"]]) for one in top)
    assert any(one["special"] for top in details["top_tokens"] for one in top)


async def test_the_seed_that_is_shown_gives_the_same_answer(http: httpx.AsyncClient) -> None:
    parameters = {"temperature": 2.0, "max_new_tokens": 40, "ignore_eos_token": True}
    first = await answer(http, "Tell me", **parameters)
    seed = first["details"]["seed"]
    assert isinstance(seed, int)
    assert (await both(http, "Tell me", seed=seed, **parameters))["generated_text"] == first["generated_text"]
    others = [await answer(http, "Tell me", **parameters) for _ in range(2)]
    assert len({seed, *(other["details"]["seed"] for other in others)}) == 3
    assert {other["generated_text"] for other in others} != {first["generated_text"]}


async def test_the_best_of_several_sequences(http: httpx.AsyncClient) -> None:
    """Each has the seed that gives it again; the answer is the one of the greatest mean log-probability."""
    parameters = {"temperature": 1.5, "max_new_tokens": 12, "ignore_eos_token": True}
    body: dict[str, Any] = {"inputs": "Tell me", "parameters": {"details": True, "best_of": 3, **parameters}}
    (made,) = (await http.post("/invocations", json=body)).json()
    check(made, whole(details=True, inputs=True, best_of=True))
    details = made["details"]
    sequences = [{"generated_text": made["generated_text"], **details}, *details["best_of_sequences"]]
    assert len(sequences) == 3
    means = [sum(token["logprob"] for token in one["tokens"]) / len(one["tokens"]) for one in sequences]
    assert means[0] == max(means)
    assert len({one["seed"] for one in sequences}) == 3
    for one in sequences:
        alone = await answer(http, "Tell me", seed=one["seed"], **parameters)
        assert alone["generated_text"] == one["generated_text"]
    # Without details nothing but the best is told.
    del body["parameters"]["details"]
    (short,) = (await http.post("/invocations", json=body)).json()
    check(short, whole(details=False, inputs=True))


async def test_prefill_and_full_text(http: httpx.AsyncClient, tokenizer: Any) -> None:
    prompt = QUESTIONS[0].prompt
    made = await answer(http, prompt, max_new_tokens=4, decoder_input_details=True, return_full_text=True)
    prefill = made["details"]["prefill"]
    assert [token["id"] for token in prefill] == tokenizer(prompt)["input_ids"]
    assert prefill[0]["logprob"] is None
    assert all(math.isfinite(token["logprob"]) for token in prefill[1:])
    assert made["generated_text"].startswith(prompt)


async def test_truncate(http: httpx.AsyncClient, tokenizer: Any) -> None:
    made = await answer(http, ENDLESS, max_new_tokens=2, truncate=3, decoder_input_details=True)
    assert [token["id"] for token in made["details"]["prefill"]] == tokenizer(ENDLESS)["input_ids"][-3:]


async def test_grammar(http: httpx.AsyncClient) -> None:
    regex = await both(http, "Tell me", max_new_tokens=20, grammar={"type": "regex", "value": "[0-9]{4}"})
    assert regex["generated_text"].isdecimal()
    assert len(regex["generated_text"]) == 4
    grammar = {"type": "json", "value": JSON_SCHEMA}
    made = await both(http, question("json").prompt, max_new_tokens=300, grammar=grammar)
    jsonschema.validate(json.loads(made["generated_text"]), JSON_SCHEMA)


# --- Errors ---

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "best_of": ({"parameters": {"best_of": 2}}, "parameters.best_of"),
    "temperature": ({"parameters": {"temperature": -1}}, "parameters.temperature"),
    "type": ({"parameters": {"max_new_tokens": "many"}}, "parameters.max_new_tokens"),
    "empty": ({"inputs": ""}, "inputs"),
    "prompt too long": ({"inputs": "word " * 8000}, "inputs"),
    "answer too long": ({"parameters": {"max_new_tokens": 2048}}, "parameters.max_new_tokens"),
    "grammar": ({"parameters": {"grammar": {"type": "regex", "value": "(("}}}, "parameters.grammar"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
async def test_a_bad_request_fails_alone(host: Host, http: httpx.AsyncClient, kind: str, streams: bool) -> None:
    """TGI's status and body where the host can send them; Java writes the body of every error of its own."""
    fields, named = BAD[kind]
    body = {"inputs": "Hello", "stream": streams, **fields}
    goods = [asyncio.create_task(answer(http, ENDLESS, max_new_tokens=20)) for _ in range(4)]
    refused = await http.post("/invocations", json=body)
    texts = {good["generated_text"] for good in await asyncio.gather(*goods)}
    assert len(texts) == 1
    assert refused.status_code == 422
    assert refused.headers["content-type"].startswith("application/json")
    made = refused.json()
    if isinstance(host, DjlHost):
        assert made == {"error": made["error"], "code": 422}
        assert made["error"].startswith(f"{named}: ")
    else:
        check(made, ERROR)
        assert made["error_type"] == "validation"
        assert made["error"].startswith(f"Input validation error: {named}: ")


@pytest.mark.parametrize("content", [b"", b"{", b"[]"])
async def test_a_body_that_cannot_be_read(host: Host, http: httpx.AsyncClient, content: bytes) -> None:
    """The attribute has told the dialect. (Java itself refuses an empty body.)"""
    refused = await http.post("/invocations", content=content)
    if isinstance(host, DjlHost):
        assert refused.status_code in ({400, 422} if not content else {422})
        return
    assert refused.status_code == 422
    check(refused.json(), ERROR)
