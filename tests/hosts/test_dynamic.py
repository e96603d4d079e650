"""Dynamic batches through the real DJL engine, and the same on the local server (docs/decisions.md: Dynamic batch)."""

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
from ..kit.djl import hosting
from ..kit.hosts.host import Client, Host, Server, Streamed, client, eventually, model_directory, start

pytestmark = [pytest.mark.once, pytest.mark.engine, pytest.mark.djl]

ASKED = [question(kind) for kind in ("plain", "unicode", "json", "long")]
PLAIN = ASKED[0]
PROPERTIES = {"option.rolling_batch": "disable", "option.log_requests": "summary", "max_batch_delay": "500"}


def running(kind: str, demo_model: Path, folder: Path, **options: str) -> Iterator[Host]:
    if kind == "dynamic" and (missing := hosting.available()):
        pytest.skip(missing)
    properties = {**PROPERTIES, **{f"option.{name}": value for name, value in options.items()}}
    host = start(
        kind,
        model_directory(demo_model, folder / "model", properties),
        folder / "log",
        {} if kind == "server" else properties,
    )
    yield host
    host.stop()


@pytest.fixture(scope="module", params=["server", "dynamic"])
def dynamic(
    request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    """The local server with `rolling_batch=disable`, and the real DJL engine with batches of up to eight."""
    yield from running(request.param, demo_model, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def streaming(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The real DJL engine with `enable_streaming`."""
    yield from running("dynamic", demo_model, tmp_path_factory.mktemp("streaming"), enable_streaming="true")


def body(prompt: str, **parameters: Any) -> dict[str, Any]:
    return {"inputs": prompt, "parameters": {"max_new_tokens": 200, **parameters}}


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
    found = re.findall(r"batch of (\d+): (.+)", host.log_text())
    told = [ids.split() for _, ids in found]
    assert [len(ids) for ids in told] == [int(size) for size, _ in found]
    return told


async def in_one_batch(http: Client, host: Host, *bodies: dict[str, Any]) -> list[httpx.Response]:
    """The answers to requests that came to the worker in one batch, in this or another order.

    Whether they meet in one is up to DJL's clock (max_batch_delay): those that did not are asked once more. The local
    server makes no batches.
    """
    for _ in range(5):
        answers = await asyncio.gather(*(http.post(one) for one in bodies))
        if isinstance(host, Server):
            return answers
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
    "a token beyond the vocabulary": (
        body(PLAIN.prompt, stop_token_ids=[10**6]),
        "parameters.stop_token_ids: expected token ids",
    ),
}
"""The first is refused by the dialect, the others by the engine."""


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.anyio
async def test_a_batch_with_a_bad_request_in_it(dynamic: Host, kind: str) -> None:
    """Eight in one batch, each with parameters of its own: seven right answers, and one error in the documented form.

    In a batch of several DJL has one status for all of them: the bad one's is 424 only where it is alone.
    """
    wrong, named = BAD[kind]
    async with client(dynamic) as http:
        # The bad one in the middle.
        *some, last = [*GOOD.values()]
        *answers, bad, end = await in_one_batch(http, dynamic, *some, wrong, last)
        answers.append(end)
        alone = [await http.post(one) for one in GOOD.values()]
        alone_bad = await http.post(wrong)
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
    assert (bad.status_code, alone_bad.status_code) == (424 if isinstance(dynamic, Server) else 200, 424)


@pytest.mark.anyio
async def test_what_is_wrong_with_a_whole_batch_has_its_status(dynamic: Host) -> None:
    async with client(dynamic) as http:
        answers = await in_one_batch(http, dynamic, *[BAD["in the dialect"][0]] * 8)
    assert {answer.status_code for answer in answers} == {424}
    assert len({answer.content for answer in answers}) == 1


@pytest.mark.anyio
async def test_alone_in_its_batch(dynamic: Host) -> None:
    async with client(dynamic) as http:
        listed = await http.post({**body(""), "inputs": [asked.prompt for asked in ASKED]})
        assert [text["generated_text"] for text in listed.json()] == [asked.answer for asked in ASKED]
        refused = await http.post(body(PLAIN.prompt, temperature="hot"))
        assert refused.status_code == 424
        assert set(refused.json()) == {"code", "message", "error"}
        chat = await http.post({"messages": [{"role": "user", "content": PLAIN.prompt}], "temperature": 0})
        assert chat.json()["choices"][0]["message"]["content"] == PLAIN.answer
        unsupported = await http.post({"messages": [{"role": "user", "content": "a"}], "n": 0})
        assert unsupported.status_code == 400
        assert unsupported.json()["error"]["param"] == "n"


@pytest.mark.anyio
async def test_streams_line_by_line(dynamic: Host) -> None:
    async with client(dynamic) as http:
        streamed: Streamed = await http.stream({**body(ASKED[3].prompt), "stream": True})
        assert (streamed.status, streamed.content_type) == (200, "application/jsonlines")
        assert all(list(line) == ["outputs"] for line in streamed.documents)
        assert "".join(line["outputs"][0] for line in streamed.documents) == ASKED[3].answer
        # A line a token where the machine keeps up, fewer where several come together.
        assert len(streamed.documents) > 5
        events = await http.stream({"messages": [{"role": "user", "content": PLAIN.prompt}], "stream": True})
        assert events.lines[-2:] == ["data: [DONE]", ""]


@pytest.mark.parametrize("name", ["n", "best_of", "num_beams"])
@pytest.mark.anyio
async def test_several_sequences_are_not_streamed(dynamic: Host, name: str) -> None:
    """What was one of them, drawn first and held to the end, is refused by name."""
    asked = drawn(**{name: 2}) if name != "num_beams" else body("Tell me", num_beams=2)
    async with client(dynamic) as http:
        refused = await http.post({**asked, "stream": True})
    assert refused.status_code == 424
    assert refused.json()["error"] == f"parameters.{name}: above 1 is not supported with streaming"


@pytest.mark.anyio
async def test_enable_streaming(streaming: Host) -> None:
    """Who does not say `stream` gets a stream, with an entry for each input in every line."""
    async with client(streaming) as http:
        streamed = await http.stream({**body(""), "inputs": [asked.prompt for asked in ASKED]})
        whole = await http.post({**body(PLAIN.prompt), "stream": False})
        refused = await http.post(drawn(n=2))
    assert (streamed.status, streamed.content_type) == (200, "application/jsonlines")
    assert all(list(line) == ["outputs"] for line in streamed.documents)
    outputs = [line["outputs"] for line in streamed.documents]
    assert all(len(entries) == len(ASKED) for entries in outputs)
    # A line is one token of one of them.
    assert all(sum(map(bool, entries)) <= 1 for entries in outputs)
    assert ["".join(texts) for texts in zip(*outputs, strict=True)] == [asked.answer for asked in ASKED]
    assert text_of(whole) == PLAIN.answer
    assert refused.json()["error"] == "parameters.n: above 1 is not supported with streaming"


def test_lines_come_while_others_are_made(streaming: Host) -> None:
    """The worker's log tells the end of a request before its last record is handed out."""
    asked = body(question("endless").prompt, max_new_tokens=1500)
    with httpx.stream("POST", f"{streaming.url}/invocations", json=asked, timeout=60) as response:
        lines = response.iter_lines()
        first = next(lines)
        told = f"request {response.headers['x-request-id']}: dialect=dynamic"
        assert told not in streaming.log_text()
        assert response.headers["transfer-encoding"] == "chunked"
        rest = [*lines]
    assert all(json.loads(line)["outputs"] for line in (first, *rest))
    assert len(rest) == 1499


@pytest.mark.anyio
async def test_streams_in_a_batch_of_several_come_in_one_piece(streaming: Host) -> None:
    """DJL takes the answers of a batch together: each has the lines that it has alone, all of them at the end."""
    asked = {**GOOD, "best_of": drawn(seed=9, return_full_text=True)}
    async with client(streaming) as http:
        *answers, _ = await in_one_batch(http, streaming, *asked.values(), likeliest(PLAIN.prompt))
        alone = [await http.post(one) for one in asked.values()]
    for answer, lone in zip(answers, alone, strict=True):
        assert answer.status_code == lone.status_code == 200
        assert answer.headers["content-type"] == lone.headers["content-type"] == "application/jsonlines"
        assert int(answer.headers["content-length"]) == len(answer.content)
        assert lone.headers["transfer-encoding"] == "chunked"
        assert lines_of(answer) == lines_of(lone)
    assert "".join(line[0] for line in lines_of(answers[0])) == ASKED[1].answer


@pytest.mark.anyio
async def test_streams_beside_whole_answers(streaming: Host) -> None:
    """A batch has one content type: of several it is application/json, whatever each of the answers is."""
    async with client(streaming) as http:
        stream, whole, bad = await in_one_batch(
            http, streaming, body(PLAIN.prompt), {**GOOD["best_of"], "stream": False}, GOOD["best_of"]
        )
    assert {answer.headers["content-type"] for answer in (stream, whole, bad)} == {"application/json"}
    assert {answer.status_code for answer in (stream, whole, bad)} == {200}
    assert "".join(line[0] for line in lines_of(stream)) == PLAIN.answer
    assert text_of(whole).startswith("Tell me")
    assert bad.json()["error"] == "parameters.best_of: above 1 is not supported with streaming"
