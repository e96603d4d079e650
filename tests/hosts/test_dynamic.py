"""Dynamic batches through the real DJL engine (docs/decisions.md: Dynamic batch)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..demo.model import question
from ..kit.hosts.host import Client, Host, client, eventually, model_directory, running

pytestmark = [pytest.mark.once, pytest.mark.engine, pytest.mark.djl]

ASKED = [question(kind) for kind in ("plain", "unicode", "json", "long")]
PLAIN = ASKED[0]
PROPERTIES = {
    "option.enable_streaming": "true", "option.log_requests": "summary", "max_batch_delay": "500"
}  # fmt: skip


@pytest.fixture(scope="module")
def dynamic(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Batches of up to eight. With `enable_streaming` who does not say `stream` gets a stream."""
    folder = tmp_path_factory.mktemp("dynamic")
    directory = model_directory(demo_model, folder / "model", PROPERTIES)
    with running("dynamic", directory, folder / "log", PROPERTIES) as host:
        yield host


def body(prompt: str, **parameters: Any) -> dict[str, Any]:
    return {"inputs": prompt, "parameters": {"max_new_tokens": 200, **parameters}}


def whole(asked: dict[str, Any]) -> dict[str, Any]:
    return {**asked, "stream": False}


def drawn(**parameters: Any) -> dict[str, Any]:
    """What the model is uncertain of: every token is up to the seed."""
    return body("Tell me", **{"max_new_tokens": 40, "temperature": 2.0, "ignore_eos_token": True, **parameters})


def text_of(answer: httpx.Response) -> str:
    (told,) = answer.json()
    assert list(told) == ["generated_text"]
    return str(told["generated_text"])


def lines_of(answer: httpx.Response) -> list[list[str]]:
    """What each line of a stream has in `outputs`."""
    assert answer.content.endswith(b"\n")
    lines = [json.loads(line) for line in answer.content.splitlines()]
    assert all(list(line) == ["outputs"] for line in lines)
    return [line["outputs"] for line in lines]


def batches(host: Host) -> list[list[str]]:
    """The ids of the requests that DJL handed over together, as the worker's log tells them."""
    found = re.findall(r"batch of (\d+): (.+)\n", host.log_text())
    told = [ids.split() for _, ids in found]
    assert [len(ids) for ids in told] == [int(size) for size, _ in found]
    return told


async def in_one_batch(http: Client, host: Host, *bodies: dict[str, Any]) -> list[httpx.Response]:
    """The answers to requests that came to the worker in one batch, in this or another order.

    Whether they meet in one is up to DJL's clock (max_batch_delay): those that did not are asked once more.
    """
    for _ in range(5):
        answers = await asyncio.gather(*(http.post(one) for one in bodies))
        ids = {answer.headers["x-request-id"] for answer in answers}

        async def logged(ids: set[str] = ids) -> bool:
            return ids <= {name for batch in batches(host) for name in batch}

        await eventually(logged)
        if any(set(batch) == ids for batch in batches(host)):
            return answers
    raise AssertionError(f"{len(bodies)} requests at once never came in one batch: {batches(host)}")


def likeliest(prompt: str, **parameters: Any) -> dict[str, Any]:
    """Greedy text that is drawn: vLLM's CPU build keeps seeds only while all that runs has one."""
    return body(prompt, **{"seed": 1, "temperature": 1.0, "top_k": 1, **parameters})


GOOD = {
    "greedy": likeliest(ASKED[1].prompt),
    "seed": drawn(seed=7),
    "another seed": drawn(seed=8, top_k=50, top_p=0.9),
    "stop_sequences": likeliest(PLAIN.prompt, stop_sequences=[PLAIN.answer[10:13]]),
    "max_new_tokens": likeliest(PLAIN.prompt, max_new_tokens=3),
    "truncate": likeliest(ASKED[2].prompt, truncate=2, max_new_tokens=30),
    "best_of": drawn(seed=7, best_of=3, max_new_tokens=12, return_full_text=True),
}
BAD = {
    "in the dialect": (body(PLAIN.prompt, top_p=7), "parameters.top_p: expected a number"),
    "a prompt beyond the context": (body("word " * 9000), "inputs: "),
}
"""The first is refused by the dialect, the other by the engine."""


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.anyio
async def test_a_batch_with_a_bad_request_in_it(dynamic: Host, kind: str) -> None:
    """Eight in one batch, each with parameters of its own: seven right answers, and one error in the documented form.

    In a batch of several DJL has one status for all of them: the bad one's is 424 only where it is alone.
    """
    wrong, named = BAD[kind]
    async with client(dynamic) as http:
        # The bad one in the middle.
        *some, last = map(whole, GOOD.values())
        *answers, bad, end = await in_one_batch(http, dynamic, *some, whole(wrong), last)
        answers.append(end)
        alone = [await http.post(whole(one)) for one in GOOD.values()]
        alone_bad = await http.post(whole(wrong))
    assert all(answer.status_code == 200 for answer in (*answers, *alone))
    texts = dict(zip(GOOD, map(text_of, answers), strict=True))
    assert texts == dict(zip(GOOD, map(text_of, alone), strict=True))
    # Each has had the effect of its own parameters.
    assert texts["greedy"] == ASKED[1].answer
    assert texts["stop_sequences"] == PLAIN.answer[: PLAIN.answer.find(PLAIN.answer[10:13])]
    assert texts["max_new_tokens"]
    assert PLAIN.answer.startswith(texts["max_new_tokens"])
    assert len(texts["max_new_tokens"]) < len(PLAIN.answer)
    assert texts["truncate"]
    assert not ASKED[2].answer.startswith(texts["truncate"])
    assert texts["best_of"].startswith("Tell me")
    assert len({*texts.values()}) == len(texts)
    for told in (bad, alone_bad):
        content = told.json()
        assert set(content) == {"code", "message", "error"}
        assert (content["code"], content["message"]) == (424, "invoke handler failure")
        assert content["error"].startswith(named)
        assert told.headers["content-type"] == "application/json"
    assert (bad.status_code, alone_bad.status_code) == (200, 424)


@pytest.mark.anyio
async def test_what_is_wrong_with_a_whole_batch_has_its_status(dynamic: Host) -> None:
    async with client(dynamic) as http:
        answers = await in_one_batch(http, dynamic, *[whole(BAD["in the dialect"][0])] * 8)
    assert {answer.status_code for answer in answers} == {424}
    assert len({answer.content for answer in answers}) == 1


@pytest.mark.anyio
async def test_another_dialect_alone_in_its_batch(dynamic: Host) -> None:
    """Its errors have its own body."""
    async with client(dynamic) as http:
        listed = await http.post(whole({**body(""), "inputs": [asked.prompt for asked in ASKED]}))
        assert [text["generated_text"] for text in listed.json()] == [asked.answer for asked in ASKED]
        refused = await http.post({"messages": [{"role": "user", "content": "a"}], "n": 0})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "n"
        events = await http.stream({"messages": [{"role": "user", "content": PLAIN.prompt}], "stream": True})
        assert events.lines[-2:] == ["data: [DONE]", ""]


@pytest.mark.anyio
async def test_enable_streaming(dynamic: Host) -> None:
    """A stream has an entry for each input in every line."""
    async with client(dynamic) as http:
        streamed = await http.stream({**body(""), "inputs": [asked.prompt for asked in ASKED]})
    assert (streamed.status, streamed.content_type) == (200, "application/jsonlines")
    assert all(list(line) == ["outputs"] for line in streamed.documents)
    outputs = [line["outputs"] for line in streamed.documents]
    assert all(len(entries) == len(ASKED) for entries in outputs)
    # A line is one token of one of them.
    assert all(sum(map(bool, entries)) <= 1 for entries in outputs)
    assert ["".join(texts) for texts in zip(*outputs, strict=True)] == [asked.answer for asked in ASKED]


def test_lines_come_while_others_are_made(dynamic: Host) -> None:
    """The worker's log tells the end of a request before its last record is handed out."""
    asked = body(question("endless").prompt, max_new_tokens=1500)
    with httpx.stream("POST", f"{dynamic.url}/invocations", json=asked, timeout=60) as response:
        lines = response.iter_lines()
        first = next(lines)
        told = f"request {response.headers['x-request-id']}: dialect=dynamic"
        assert told not in dynamic.log_text()
        assert response.headers["transfer-encoding"] == "chunked"
        rest = [*lines]
    assert all(json.loads(line)["outputs"] for line in (first, *rest))
    assert len(rest) == 1499


@pytest.mark.anyio
async def test_streams_in_a_batch_of_several_come_in_one_piece(dynamic: Host) -> None:
    """DJL takes the answers of a batch together: each has the lines that it has alone, all of them at the end."""
    asked = {**GOOD, "best_of": drawn(seed=9, return_full_text=True)}
    async with client(dynamic) as http:
        *answers, _ = await in_one_batch(http, dynamic, *asked.values(), likeliest(PLAIN.prompt))
        alone = [await http.post(one) for one in asked.values()]
    for answer, lone in zip(answers, alone, strict=True):
        assert answer.status_code == lone.status_code == 200
        assert answer.headers["content-type"] == lone.headers["content-type"] == "application/jsonlines"
        assert int(answer.headers["content-length"]) == len(answer.content)
        assert lone.headers["transfer-encoding"] == "chunked"
        assert lines_of(answer) == lines_of(lone)
    assert "".join(line[0] for line in lines_of(answers[0])) == ASKED[1].answer


@pytest.mark.anyio
async def test_streams_beside_whole_answers(dynamic: Host) -> None:
    """A batch has one content type: of several it is application/json, whatever each of the answers is."""
    async with client(dynamic) as http:
        asked = body(PLAIN.prompt), whole(GOOD["best_of"]), GOOD["best_of"]
        stream, best, bad = await in_one_batch(http, dynamic, *asked)
    assert {answer.headers["content-type"] for answer in (stream, best, bad)} == {"application/json"}
    assert {answer.status_code for answer in (stream, best, bad)} == {200}
    assert "".join(line[0] for line in lines_of(stream)) == PLAIN.answer
    assert text_of(best).startswith("Tell me")
    assert bad.json()["error"] == "parameters.best_of: above 1 is not supported with streaming"
