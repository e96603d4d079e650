"""Dynamic batch: its dialect, and batches through the real DJL engine (specs 002, Dynamic Batch Schema)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmi.formatters import Answer, Call, Request, receive
from lmi.model.demo_model import question
from lmi.model.errors import GenerationError
from lmi.model.events import Delta, Event, Failed, Finish, Started, Token
from lmi.model.options import Settings

from .djl import hosting
from .endpoints import Host, Streamed, client, model_directory, start

SETTINGS = Settings(model_dir="/model", model_id="/model", model_name="/model", rolling_batch="disable")
STREAMING = Settings(
    model_dir="/model", model_id="/model", model_name="/model", rolling_batch="disable", enable_streaming=True
)
TWO = ["What is Deep Learning", "How many ways can I peel an orange"]


def call(body: object, settings: Settings = SETTINGS) -> Call:
    received = receive(Request(json.dumps(body).encode()), settings)
    assert isinstance(received, Call), received
    return received


def refused(body: bytes, settings: Settings = SETTINGS) -> Answer:
    received = receive(Request(body), settings)
    assert isinstance(received, Answer)
    return received


def events(text: str) -> list[Event]:
    """One token a word."""
    tokens = [Token(index, word) for index, word in enumerate(text.split(" "), 1)]
    deltas = [Delta(0, token.text, (token,)) for token in tokens[:-1]]
    last = Delta(0, tokens[-1].text, (tokens[-1],), Finish("eos", generated_tokens=len(tokens)))
    return [Started(3), *deltas, last]


def test_whole() -> None:
    """Specs 002: a list of objects with one field each, in the order of the inputs."""
    asked = call({"inputs": TWO, "parameters": {"max_new_tokens": 256, "do_sample": True, "details": True}})
    assert [generation.prompt for generation in asked.generations] == TWO
    assert {generation.sampling.max_tokens for generation in asked.generations} == {256}
    assert not any(generation.stream or generation.tokens for generation in asked.generations)
    records: list[bytes] = []
    for prompt, text in ((1, "c d"), (0, "a b")):
        assert not records
        for event in events(text):
            records += asked.reply.feed(event, prompt)
    assert asked.reply.finished
    assert (asked.reply.status, asked.reply.content_type) == (200, "application/json")
    assert json.loads(b"".join(records)) == [{"generated_text": "ab"}, {"generated_text": "cd"}]


def test_one_input_is_a_list_of_one() -> None:
    asked = call({"inputs": "What is Deep Learning?", "parameters": {"return_full_text": True}})
    records = [record for event in events("It is") for record in asked.reply.feed(event)]
    assert json.loads(b"".join(records)) == [{"generated_text": "What is Deep Learning?Itis"}]


@given(st.permutations([0, 0, 0, 1, 1]), st.booleans())
def test_streamed(order: list[int], full: bool) -> None:
    """Every line has an entry for each input; those of an input, joined, are its text, in whatever order they come."""
    asked = call({"inputs": ["x", "y"], "parameters": {"return_full_text": full}}, STREAMING)
    assert all(generation.stream and generation.tokens for generation in asked.generations)
    texts = ["This opportunity is", "not lost"]
    waiting = [iter(events(text)) for text in texts]
    for prompt, each in enumerate(waiting):
        assert asked.reply.feed(next(each), prompt) == []
    records = [record for prompt in order for record in asked.reply.feed(next(waiting[prompt]), prompt)]
    assert asked.reply.finished
    assert asked.reply.content_type == "application/jsonlines"
    assert all(record.endswith(b"\n") and record.count(b"\n") == 1 for record in records)
    lines = [json.loads(record) for record in records]
    assert all(list(line) == ["outputs"] and len(line["outputs"]) == 2 for line in lines)
    joined = ["".join(line["outputs"][prompt] for line in lines) for prompt in range(2)]
    beginnings = ["x", "y"] if full else ["", ""]
    assert joined == [start + text.replace(" ", "") for start, text in zip(beginnings, texts, strict=True)]
    assert len(lines) == len(order) + full


@pytest.mark.parametrize(
    ("settings", "stream", "streams"),
    [
        (SETTINGS, None, False),
        (SETTINGS, True, True),
        (STREAMING, None, True),
        (STREAMING, False, False),
    ],
)
def test_what_decides_on_streaming(settings: Settings, stream: bool | None, streams: bool) -> None:
    (generation,) = call({"inputs": "a", "stream": stream}, settings).generations
    assert generation.stream is streams


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is empty, expected a JSON object"),
        (b"{}", "nothing tells which dialect the body is in: expected a field inputs (dynamic)"),
        (b'{"inputs": ""}', "inputs: expected a non-empty string or a list of them, got ''"),
        (b'{"inputs": []}', "inputs: expected a non-empty string or a list of them, got []"),
        (b'{"inputs": ["a", 5]}', "inputs[1]: expected a non-empty string, got 5"),
        (b'{"inputs": "a", "parameters": 5}', "parameters: expected an object, got 5"),
        (b'{"inputs": "a", "parameters": {"temperature": -1}}', "parameters.temperature: expected a number"),
        (json.dumps({"inputs": ["a"] * 1025}).encode(), "inputs: expected at most 1024 texts, got 1025"),
    ],
)
def test_errors(body: bytes, message: str) -> None:
    """Specs 002, Dynamic Batch, Error Responses: code, message and error, with status 424."""
    answer = refused(body)
    assert (answer.status, answer.content_type) == (424, "application/json")
    told = json.loads(answer.body)
    assert set(told) == {"code", "message", "error"}
    assert (told["code"], told["message"]) == (424, "invoke handler failure")
    assert told["error"].startswith(message)


def test_an_error_of_one_input_ends_the_request() -> None:
    asked = call({"inputs": TWO})
    asked.reply.feed(events("a")[0], 0)
    (record,) = asked.reply.feed(Failed.of(GenerationError("no luck")), 1)
    assert json.loads(record) == {"code": 424, "message": "invoke handler failure", "error": "no luck"}
    assert (asked.reply.status, asked.reply.finished) == (424, True)


def test_an_error_in_the_middle_of_a_stream_is_its_last_line() -> None:
    asked = call({"inputs": TWO}, STREAMING)
    assert asked.reply.feed(Delta(0, "a", (Token(1, "a"),)), 0)
    (record,) = asked.reply.feed(Failed.of(GenerationError("no luck")), 1)
    assert record == b'{"code":424,"error":"no luck","message":"invoke handler failure"}\n'
    assert (asked.reply.status, asked.reply.finished) == (200, True)


# Behind the real hosts.

ASKED = [question(kind) for kind in ("plain", "unicode", "json", "long")]


@pytest.fixture(scope="module", params=["server", "dynamic"])
def dynamic(
    request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    """The local server with `rolling_batch=disable`, and the real DJL engine with batches of up to eight."""
    kind = request.param
    if kind == "dynamic" and (missing := hosting.available()):
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp(kind)
    properties = {"option.rolling_batch": "disable"}
    running = start(kind, model_directory(demo_model, folder / "model", properties), folder / "log")
    yield running
    running.stop()


def body(prompt: str, **parameters: Any) -> dict[str, Any]:
    return {"inputs": prompt, "parameters": {"max_new_tokens": 200, **parameters}}


@pytest.mark.engine
@pytest.mark.anyio
async def test_a_batch_with_a_bad_request_in_it(dynamic: Host) -> None:
    """Eight at once, each with parameters of its own: seven right answers, and one error in the documented form.

    In a batch of several DJL has one status for all of them, so that the bad one's is 424 only where it is alone.
    """
    good = [body(asked.prompt) for asked in ASKED] + [
        body(ASKED[0].prompt, return_full_text=True),
        body(ASKED[0].prompt, max_new_tokens=3),
        body(ASKED[0].prompt, stop_sequences=[ASKED[0].answer[10:13]]),
    ]
    async with client(dynamic) as http:
        *answers, bad = await asyncio.gather(*(http.post(one) for one in [*good, body(ASKED[0].prompt, top_p=7)]))
        short = (await http.post(good[5])).json()
    texts = [answer.json()[0]["generated_text"] for answer in answers]
    assert all(answer.status_code == 200 and len(answer.json()) == 1 for answer in answers)
    assert texts[:4] == [asked.answer for asked in ASKED]
    assert texts[4] == ASKED[0].prompt + ASKED[0].answer
    assert texts[5] == short[0]["generated_text"]
    assert 0 < len(texts[5]) < len(ASKED[0].answer)
    assert ASKED[0].answer.startswith(texts[5])
    assert texts[6] == ASKED[0].answer.split(ASKED[0].answer[10:13])[0]
    told = bad.json()
    assert (told["code"], told["message"]) == (424, "invoke handler failure")
    assert told["error"].startswith("parameters.top_p: expected a number")


@pytest.mark.engine
@pytest.mark.anyio
async def test_alone_in_its_batch(dynamic: Host) -> None:
    async with client(dynamic) as http:
        listed = await http.post({**body(""), "inputs": [asked.prompt for asked in ASKED]})
        assert [text["generated_text"] for text in listed.json()] == [asked.answer for asked in ASKED]
        refused = await http.post(body(ASKED[0].prompt, temperature="hot"))
        assert refused.status_code == 424
        assert set(refused.json()) == {"code", "message", "error"}
        chat = await http.post({"messages": [{"role": "user", "content": ASKED[0].prompt}], "temperature": 0})
        assert chat.json()["choices"][0]["message"]["content"] == ASKED[0].answer
        unsupported = await http.post({"messages": [{"role": "user", "content": "a"}], "n": 0})
        assert unsupported.status_code == 400
        assert unsupported.json()["error"]["param"] == "n"


@pytest.mark.engine
@pytest.mark.anyio
async def test_streams_line_by_line(dynamic: Host) -> None:
    async with client(dynamic) as http:
        streamed: Streamed = await http.stream({**body(ASKED[3].prompt), "stream": True})
        assert (streamed.status, streamed.content_type) == (200, "application/jsonlines")
        assert all(list(line) == ["outputs"] for line in streamed.documents)
        assert "".join(line["outputs"][0] for line in streamed.documents) == ASKED[3].answer
        # A line a token where the machine keeps up, fewer where several come together.
        assert len(streamed.documents) > 5
        events = await http.stream({"messages": [{"role": "user", "content": ASKED[0].prompt}], "stream": True})
        assert events.lines[-2:] == ["data: [DONE]", ""]


@pytest.mark.engine
def test_a_request_cannot_pass_for_a_batch(dynamic: Host) -> None:
    answer = httpx.post(
        f"{dynamic.url}/invocations?batch_000.data=x",
        json=body(ASKED[0].prompt),
        headers={"batch_size": "2"},
        timeout=60,
    )
    assert answer.json() == [{"generated_text": ASKED[0].answer}]
