"""The transformers engine behind the local server and behind the real DJL engine: every dialect works on it."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from ..demo.answers import Question
from ..demo.model import JSON_SCHEMA, QUESTIONS, question
from ..kit.answers.spoken import SPOKEN, records
from ..kit.djl import hosting
from ..kit.hosts.host import (
    Client,
    Host,
    Streamed,
    begun,
    client,
    djl_host,
    engine_process,
    eventually,
    model_directory,
    start,
)
from .test_same_text import BODIES, alone, same_texts

pytestmark = [pytest.mark.engine, pytest.mark.slow]

PROPERTIES = {
    "option.rolling_batch": "scheduler",
    "option.structured_outputs_config": '{"disable_any_whitespace": true}',
}
ENDLESS = question("endless").prompt


@pytest.fixture(scope="module")
def server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("server")
    running = start("server", model_directory(demo_model, folder / "model", PROPERTIES), folder / "log")
    yield running
    running.stop()


@pytest.fixture(scope="module")
def chat(server: Host) -> Iterator[openai.OpenAI]:
    with openai.DefaultHttpxClient(timeout=60) as http:
        yield openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", http_client=http, max_retries=0)


def body(prompt: str, stream: bool = False, /, **parameters: Any) -> dict[str, Any]:
    return {"inputs": prompt, "parameters": parameters, "stream": stream}


def joined(streamed: Streamed) -> str:
    return "".join(document["token"]["text"] for document in streamed.documents)


def user(kind: str) -> list[Any]:
    return [{"role": "user", "content": question(kind).prompt}]


@pytest.mark.parametrize("name", SPOKEN)
def test_every_dialect(server: Host, name: str) -> None:
    """Whole and streamed, the answer that the model knows."""
    spoken = SPOKEN[name]
    headers = {
        "content-type": "application/json",
        "X-Amzn-SageMaker-Custom-Attributes": f"dialect={spoken.dialect}",
        "accept": spoken.accept or "*/*",
    }
    whole, streamed = (
        httpx.post(f"{server.url}/invocations", json=asked, headers=headers, timeout=60, verify=False)
        for asked in (spoken.whole, spoken.stream)
    )
    assert spoken.text(whole.json()) == question("unicode").answer
    pieces = records(spoken, streamed.content.split(b"\n"))
    assert "".join(spoken.piece(record) for record in pieces) == question("unicode").answer


def test_the_log_names_the_engine(server: Host) -> None:
    assert "engine transformers" in server.log_text()


async def sixteen(http: Client, max_new_tokens: int) -> tuple[list[Streamed], list[Question], list[asyncio.Task[Any]]]:
    """So many streams that have begun, and what each was asked."""
    running = [Streamed() for _ in range(16)]
    asked = [question for question, _ in zip(itertools.cycle(QUESTIONS), running, strict=False)]
    tasks: list[asyncio.Task[Any]] = [
        asyncio.create_task(
            http.stream(body(one.prompt, True, max_new_tokens=max_new_tokens, ignore_eos_token=True), streamed)
        )
        for one, streamed in zip(asked, running, strict=True)
    ]
    await begun(running, lines=3)
    return running, asked, tasks


@pytest.mark.anyio
async def test_sixteen_streams_at_once(server: Host) -> None:
    """Each has its own right text, and all have begun before any has ended."""
    async with client(server) as http:
        running, asked, tasks = await sixteen(http, max_new_tokens=200)
        refused = await http.post(body("x" * 9000))
        await asyncio.gather(*tasks)
    assert refused.status_code == 424
    assert max(streamed.ticks[0] for streamed in running) < min(streamed.ticks[-1] for streamed in running)
    for one, streamed in zip(asked, running, strict=True):
        assert len(streamed.documents) == 200
        assert joined(streamed) == streamed.documents[-1]["generated_text"]
        if one.kind != "endless":
            assert joined(streamed).startswith(one.answer)


@pytest.mark.anyio
async def test_lmi_details_streamed_and_whole(server: Host) -> None:
    asked = question("unicode")
    parameters = {"max_new_tokens": 300, "details": True, "decoder_input_details": True}
    async with client(server) as http:
        whole = (await http.post(body(asked.prompt, **parameters))).json()
        streamed = await http.stream(body(asked.prompt, True, **parameters))
        stop = asked.answer[9:14]
        stopped = (await http.post(body(asked.prompt, **parameters, stop_sequences=[stop]))).json()
    details = whole["details"]
    assert whole["generated_text"] == joined(streamed) == asked.answer
    assert [token["text"] for token in details["tokens"]] == [one["token"]["text"] for one in streamed.documents]
    assert all(isinstance(token["log_prob"], float) for token in details["tokens"])
    assert details["finish_reason"] == "eos_token"
    assert details["prefill"][0]["log_prob"] is None
    assert stopped["generated_text"] == asked.answer[: asked.answer.index(stop)]
    assert stopped["details"]["finish_reason"] == "stop_sequence"


def test_openai_chat(chat: openai.OpenAI) -> None:
    answer = chat.chat.completions.create(model="any", messages=user("plain"), temperature=0, logprobs=True)
    assert answer.choices[0].message.content == question("plain").answer
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content
    assert "".join(token.token for token in logprobs.content) == question("plain").answer
    asked = question("reasoning")
    chunks = [*chat.chat.completions.create(model="any", messages=user("reasoning"), temperature=0, stream=True)]
    # No parser takes it apart.
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == asked.answer
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": JSON_SCHEMA}}
    guided = chat.chat.completions.create(model="any", messages=user("json"), temperature=0, response_format=form)
    assert isinstance(json.loads(guided.choices[0].message.content or ""), dict)


@pytest.mark.anyio
async def test_what_it_does_not_have_is_refused_by_name(server: Host) -> None:
    tool = {"type": "function", "function": {"name": "a", "parameters": {"type": "object", "properties": {}}}}
    async with client(server) as http:
        beams = await http.post(body("Tell me", num_beams=2))
        tools = await http.post({"messages": user("plain"), "tools": [tool]})
    assert (beams.status_code, tools.status_code) == (424, 400)
    assert "parameters.num_beams: the transformers engine does not support beam search" in beams.json()["error"]
    assert "tools: the transformers engine does not parse tool calls" in tools.text


@pytest.mark.anyio
async def test_a_client_that_leaves_ends_its_sequences(server: Host) -> None:
    def running() -> int:
        told = httpx.get(f"{server.url}/metrics", verify=False).text
        (line,) = [line for line in told.splitlines() if line.startswith("lmi_sequences_running")]
        return int(float(line.split()[-1]))

    async def eight() -> bool:
        return running() == 8

    async def nothing() -> bool:
        return running() == 0

    async with client(server) as http:
        given = {"n": 8, "do_sample": True, "max_new_tokens": 1900, "ignore_eos_token": True}
        asked = asyncio.create_task(http.post(body(ENDLESS, **given)))
        await eventually(eight)
        asked.cancel()
        await eventually(nothing)
        again = (await http.post(body(question("plain").prompt, max_new_tokens=100))).json()
    assert again["generated_text"] == question("plain").answer


def test_openai_completions(chat: openai.OpenAI) -> None:
    asked = question("plain")
    answer = chat.completions.create(
        model="any", prompt=[asked.prompt, "Tell me"], max_tokens=60, temperature=0, logprobs=2, n=1, echo=True
    )
    assert answer.choices[0].text == asked.prompt + asked.answer
    several = chat.completions.create(model="any", prompt="Tell me", n=3, seed=4, temperature=2.0, max_tokens=9)
    again = chat.completions.create(model="any", prompt="Tell me", n=3, seed=4, temperature=2.0, max_tokens=9)
    assert [choice.text for choice in several.choices] == [choice.text for choice in again.choices]
    assert len({choice.text for choice in several.choices}) == 3


@pytest.mark.anyio
async def test_a_crash_after_a_guide_says_where_it_was(demo_model: Path, tmp_path: Path) -> None:
    """xgrammar, which the guide loads, brings tvm_ffi's handler along (model/process/ending/crash_report.py)."""
    host = start("server", model_directory(demo_model, tmp_path / "model", PROPERTIES), tmp_path / "log")
    try:
        async with client(host) as http:
            guided = await http.post({"messages": user("plain"), "guided_choice": ["one"]})
            assert guided.json()["choices"][0]["message"]["content"] == "one"
            streamed = Streamed()
            task = asyncio.create_task(http.stream(body(ENDLESS, True, max_new_tokens=1500), streamed))
            await begun([streamed])
            engine_process(host).send_signal(signal.SIGSEGV)
            await task
        assert "SIGSEGV" in streamed.lines[-1]
        assert "Fatal Python error: Segmentation fault" in host.log_text()
        assert "Segfault encountered" not in host.log_text(), "tvm_ffi's handler"
    finally:
        host.stop()


@pytest.mark.djl
@pytest.mark.anyio
async def test_behind_djl_in_rolling_batch(demo_model: Path, tmp_path: Path) -> None:
    if missing := hosting.available():
        pytest.skip(missing)
    model_dir = model_directory(demo_model, tmp_path / "model", {})
    properties = {"option.rolling_batch": "hf-accelerate"}
    with djl_host(model_dir, tmp_path / "log", mode="rolling", properties=properties) as host:
        asked = [one for one in QUESTIONS if one.kind != "endless"]
        async with client(host) as http:
            streams = [http.stream(body(one.prompt, True, max_new_tokens=400, details=True)) for one in asked]
            bad = http.post(body("word " * 9000))
            answers, refused = await asyncio.gather(asyncio.gather(*streams), bad)
        for one, streamed in zip(asked, answers, strict=True):
            assert joined(streamed) == one.answer
            assert streamed.documents[-1]["details"]["finish_reason"] == "eos_token"
        assert refused.status_code == 424
        assert "inputs" in refused.json()["error"]
        assert "engine transformers" in host.log_text()


@pytest.mark.djl
@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["async", "dynamic"])
async def test_behind_djl_in_the_other_modes(server: Host, demo_model: Path, tmp_path: Path, mode: str) -> None:
    """The texts that the local server gives, but for beams, which this engine does not have."""
    bodies = {name: one for name, one in BODIES.items() if "num_beams" not in one.get("parameters", {})}
    if missing := hosting.available():
        pytest.skip(missing)
    expected = alone(server, bodies)
    model_dir = model_directory(demo_model, tmp_path / "model", {"option.backend": "transformers"})
    with djl_host(model_dir, tmp_path / "log", mode=mode) as host:
        await same_texts(host, expected, first_only=mode == "dynamic")
        assert "engine transformers" in host.log_text()
