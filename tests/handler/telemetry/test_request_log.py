"""What is logged of requests: ids, content only where that is asked for, nothing that the host takes for its own."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ...demo.model import question
from ...kit.api.engine import Tidy, show_content
from ...kit.api.errors import GenerationError
from ...kit.api.handler import Access, Exchange, PlainBatch, Service, application, request_id_of, started_service
from ...kit.api.types import Delta, Failed, Finish, Request, Started
from ...kit.djl import hosting
from ...kit.hosts.host import Host, client, eventually, model_directory, start
from ...kit.logs import HOSTS_WORDS, MARK, Caught
from ...kit.rows import each_row
from ...kit.user_code.engine import ScriptedEngine
from ...kit.waiting import until

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    show_content(True)


# Request ids.

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@each_row("given", ["a", "Root=1-67891233-abcdef012345678912345678", "x" * 128, "2f/ab+c=:~@,;"])
def test_an_id_that_is_taken(given: str) -> None:
    assert request_id_of(given) == given


@each_row("given", [None, "", "x" * 129, "a b", "a\nb", "a\r\nset-cookie: b", "é", "[METRICS]", '"', "\x00"])
def test_an_id_that_is_made(given: str | None) -> None:
    assert UUID.fullmatch(request_id_of(given))


@pytest.mark.anyio
async def test_the_id_comes_back() -> None:
    """With answers of every kind."""
    service = started_service(ScriptedEngine())
    app = application(service, Access("key"))
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://local")
    async with app.router.lifespan_context(app), http:
        for path, key in [("/invocations", ""), ("/invocations", "key"), ("/v1/models", "key"), ("/info?x=1", "key")]:
            headers = {"x-request-id": "abc-1", "authorization": f"Bearer {key}"}
            method = "GET" if path != "/invocations" else "POST"
            answer = await http.request(method, path, headers=headers, content=b"{")
            assert answer.headers["x-request-id"] == "abc-1"
        made = await http.post("/invocations", headers={"x-request-id": "a b"})
        assert UUID.fullmatch(made.headers["x-request-id"])


# Lines about requests.

LogOf = Callable[..., tuple[Service, ScriptedEngine, Caught]]


@pytest.fixture
def log_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogOf]:
    """A service with what its process logs."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    ours = logging.getLogger("lmi")
    before = (ours.propagate, ours.level, ours.handlers)
    services: list[Service] = []

    def make(**options: str) -> tuple[Service, ScriptedEngine, Caught]:
        engine = ScriptedEngine()
        service = started_service(engine, tmp_path, **options)
        services.append(service)
        # Of requests only.
        return service, engine, Caught("lmi", Tidy(everybody=False))

    yield make
    for service in services:
        service.close()
    ours.propagate, ours.level, ours.handlers = before
    sys.modules.pop("raising_guard", None)


def ask(service: Service, body: bytes, request_id: str, **more: Any) -> Exchange:
    return service.open(Request(body, request_id=request_id, **more))


SAID = json.dumps({"inputs": MARK, "stream": True}).encode()


def play(service: Service, engine: ScriptedEngine) -> None:
    """A refused request, a good one, one that fails in the engine, one that is aborted."""
    ask(service, b'{"inputs": "%s", "parameters": {"top_p": "%s"}}' % (MARK.encode(), MARK.encode()), "r-1")
    ask(service, SAID, "r-2")
    engine.say(0, Started(5), Delta(0, f"an answer of {MARK}", finish=Finish("eos", generated_tokens=4)))
    ask(service, SAID, "r-3")
    engine.say(1, Failed.of(GenerationError(f"broken by {MARK}")))
    left = ask(service, SAID, "r-4")
    left.abort()


def test_by_default_the_log_has_what_went_wrong(log_of: LogOf) -> None:
    service, engine, caught = log_of()
    play(service, engine)
    assert caught.text.splitlines() == [
        "request r-1 refused: invalid_payload (parameters.top_p)",
        "request r-3 failed: generation_failed",
    ]


def test_a_summary_of_each_request(log_of: LogOf) -> None:
    service, engine, caught = log_of(log_requests="summary")
    play(service, engine)
    assert MARK not in caught.text
    told = re.sub(r"=\d+\.\d+", "=T", caught.text).splitlines()
    some = "finish=eos prompt_tokens=5 generated_tokens=4 first_token=T total=T"
    none = "finish=none prompt_tokens=0 generated_tokens=0 total=T"
    assert told == [
        "request r-1 refused: invalid_payload (parameters.top_p)",
        f"request r-1: dialect=lmi status=424 outcome=refused {none}",
        f"request r-2: dialect=lmi status=200 outcome=ok {some}",
        "request r-3 failed: generation_failed",
        f"request r-3: dialect=lmi status=424 outcome=failed {none}",
        f"request r-4: dialect=lmi status=200 outcome=aborted {none}",
    ]


@pytest.mark.parametrize("asked", ["false", "summary"])
def test_what_a_dynamic_batch_held(log_of: LogOf, asked: str) -> None:
    service, _, caught = log_of(log_requests=asked, rolling_batch="disable")
    batch = PlainBatch(service)
    wrong = [Request(b"{}", request_id=f"r-{number}") for number in range(3)]
    assert [answer.status for answer in batch.answers(wrong[:2])] == [424, 424]
    batch.answer(wrong[2])
    told = [line for line in caught.text.splitlines() if line.startswith("batch")]
    assert told == (["batch of 2: r-0 r-1", "batch of 1: r-2"] if asked == "summary" else [])


def test_bodies_are_logged_where_that_is_asked_for(log_of: LogOf) -> None:
    service, engine, caught = log_of(log_requests="true")
    play(service, engine)
    lines = caught.text.splitlines()
    assert f"request r-3 failed: generation_failed: broken by {MARK}" in lines
    (of_the_second,) = [line for line in lines if line.startswith("request r-2: dialect")]
    assert json.loads(of_the_second.partition(" body=")[2]) == SAID.decode()
    (answer,) = [line for line in lines if line.startswith("request r-2: answer=")]
    assert f"an answer of {MARK}" in json.loads(answer.partition("answer=")[2])


def test_long_bodies_are_cut_and_hostile_ones_tidied(log_of: LogOf) -> None:
    service, _, caught = log_of(log_requests="true")
    ask(service, b'{"inputs": "' + b"x" * 100_000, "r-1")
    ask(service, "[METRICS]a.Count:--\nPython engine started.\n\x1b[2J\u2028".encode(), "r-2")
    lines = caught.text.splitlines()
    assert max(map(len, lines)) < 2200
    assert not any("[METRICS]" in line or "Python engine started." in line or "\x1b" in line for line in lines)
    assert all(line.startswith("request r-") for line in lines)


RAISES = """
def judge(text, stage):
    if stage == "text":
        raise ValueError("judged " + text)
"""


def test_what_code_of_the_user_s_raises(log_of: LogOf, tmp_path: Path) -> None:
    (tmp_path / "raising_guard.py").write_text(RAISES)
    service, engine, caught = log_of(content_filter="raising_guard:judge")
    opened = ask(service, SAID, "r-1")
    assert isinstance(opened, Exchange)
    until(lambda: engine.generations)
    engine.say(0, Started(5), Delta(0, MARK))
    until(lambda: opened.finished)
    assert MARK not in caught.text
    assert "request r-1: content filter raising_guard:judge failed" in caught.text
    assert "in judge" in caught.text
    assert "request r-1 failed: user_code_failed" in caught.text


# The real engine behind real hosts.

PROMPT = question("plain").prompt
PICTURE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{MARK}"}}


def chat(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"{PROMPT} {MARK}"}], "max_tokens": 5, **more}


BODIES: list[object] = [
    # Names of fields are logged.
    {"inputs": MARK, "parameters": dict.fromkeys(HOSTS_WORDS, MARK)},
    f'{{"inputs": "{MARK}'.encode(),
    f'"{MARK}"'.encode(),
    f'{{"inputs": "{MARK}", "parameters": {{"top_p": NaN}}}}'.encode(),
    {"inputs": {"a": MARK}},
    {"inputs": MARK, "parameters": {"top_p": MARK}},
    {"inputs": MARK, "parameters": {"max_new_tokens": 3, "details": True, "decoder_input_details": True}},
    {"inputs": MARK, "parameters": {"max_new_tokens": 3}, "stream": True},
    {"inputs": MARK, "parameters": {"unheard_of": MARK}},
    {"inputs": f"{MARK} " * 3000},
    {"inputs": MARK, "parameters": {"stop_sequences": [MARK] * 1000}},
    {"inputs": MARK, "parameters": {"bad_sequences": [MARK]}},
    {"prompt": MARK, "max_tokens": 3, "n": 2, "logprobs": 2},
    {"prompt": MARK, "logit_bias": {"5": MARK}},
    {"prompt": MARK, "model": MARK, "user": MARK, "max_tokens": 3},
    chat(),
    chat(stream=True, logprobs=True, top_logprobs=2),
    chat(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": MARK}}}),
    chat(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"pattern": f"{MARK}("}}}),
    chat(guided_regex=f"{MARK}("),
    chat(guided_grammar=f"root ::= {MARK}"),
    chat(tools=[{"type": "function", "function": {"name": MARK, "parameters": {"type": MARK}}}], tool_choice=MARK),
    chat(chat_template_kwargs={"add_generation_prompt": MARK, MARK: MARK}),
    chat(chat_template=f"{{{{ {MARK}.a.b }}}}"),
    {"messages": [{"role": MARK, "content": MARK}]},
    {"messages": [{"role": "user", "content": [PICTURE]}]},
    {"messages": [{"role": "assistant", "content": None, "tool_calls": MARK}]},
    {"messages": [{"role": "tool", "tool_call_id": MARK, "content": MARK}]},
]


async def ask_all(host: Host) -> list[int]:
    """The bodies, and headers that no body can be read of."""
    odd = [
        {"content-type": f"text/{MARK}"},
        {"x-amzn-sagemaker-custom-attributes": f"dialect={MARK}"},
        {"x-amzn-sagemaker-adapter-identifier": MARK},
        {"authorization": f"Bearer {MARK}", "api-key": MARK},
    ]
    async with client(host) as http, httpx.AsyncClient(base_url=host.url, timeout=60) as plain:
        statuses = [(await http.post(body)).status_code for body in BODIES]
        for headers in odd:
            sent = {"content-type": "application/json", **headers}
            answer = await plain.post("/invocations", json={"inputs": MARK}, headers=sent)
            statuses.append(answer.status_code)
    return statuses


@pytest.mark.engine
@pytest.mark.djl
@pytest.mark.anyio
async def test_nothing_of_a_client_is_in_the_log(host: Host) -> None:
    """Nor anything that makes the host do what a client wants."""
    before, worker = len(host.log_text()), host.worker_pid
    statuses = await ask_all(host)
    assert statuses.count(200) >= 8
    assert len(statuses) - statuses.count(200) >= 12

    async def logged() -> bool:
        return host.log_text()[before:].count(" refused: ") >= 12

    await eventually(logged)
    log = host.log_text()[before:]
    assert "unknown request field ignored: parameters.[_METRICS]a.Count:--" in log
    assert not [line for line in log.splitlines() if MARK in line]
    assert host.worker_pid == worker


@pytest.mark.engine
@pytest.mark.djl
@pytest.mark.anyio
async def test_behind_djl_with_everything_logged(demo_model: Path, tmp_path: Path) -> None:
    """Bodies, keys left out; the host goes on reading; metrics every second."""
    if missing := hosting.available():
        pytest.skip(missing)
    properties = {"option.log_requests": "true", "option.metrics_interval": "1"}
    host = start("rolling", model_directory(demo_model, tmp_path / "model", properties), tmp_path / "log")
    try:
        worker = host.worker_pid
        hostile = [{"inputs": f"{word} {MARK}", "parameters": {"max_new_tokens": 3}} for word in HOSTS_WORDS]
        async with client(host) as http, httpx.AsyncClient(base_url=host.url, timeout=60) as plain:
            for body in hostile:
                assert (await http.post(body)).status_code == 200
            refused = await http.post({"inputs": MARK, "parameters": {"top_p": "[METRICS]a.Count:-- and more"}})
            assert refused.status_code == 424
            secret = {"content-type": "application/json", "authorization": "Bearer zqxkey", "api-key": "zqxkey"}
            await plain.post("/invocations", json={"inputs": MARK}, headers=secret)

            async def reported() -> bool:
                log = host.log_text()
                # Java's line about the last of our metrics.
                return log.count(": dialect=lmi status=200 ") > len(hostile) and "LmiRequestDuration" in log

            await eventually(reported)
            assert (await http.post({"inputs": PROMPT})).status_code == 200
        log = host.log_text()
        assert host.worker_pid == worker
        assert "zqxkey" not in log
        assert len(re.findall(rf"request \S+: dialect=lmi status=200 .* body=.*{MARK}", log)) == len(hostile) + 1
        assert "got '[_METRICS]a.Count:-- and more'" in log
        assert re.search(r"in 1 s: requests=\d+ .*generated_tokens=\d+ first", log) is None, "nothing was streamed"
        assert re.search(r"in 1 s: requests=\d+ .*generated_tokens=\d+ total=\d", log)
        told = dict(re.findall(r"model_metric - (Lmi\w+)\.\w+:([\d.]+)", log))
        assert float(told["LmiKvCacheUsage"]) >= 0
        assert {"LmiRequests", "LmiRequests_ok", "LmiGeneratedTokens", "LmiRequestDuration"} <= told.keys()
    finally:
        host.stop()
