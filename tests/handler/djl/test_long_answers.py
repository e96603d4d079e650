"""Answers that are longer than a field of DJL's protocol, which closes its channel at such a field, and than may be.

The bodies behind real hosts are a hundred and fifty bytes that ask for 35 MB.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmi.handler.djl import frames as frames_module
from lmi.handler.djl.frames import FIELD, next_slice, slices

from ...demo.model import question
from ...kit.api.engine import RESPONSE_TOKEN as TOKEN
from ...kit.api.engine import check_size
from ...kit.api.errors import ParameterError
from ...kit.api.handler import AsyncBatcher, Chunks, Exchange, PlainBatch, RollingBatch, Service, Whole, started_service
from ...kit.api.handler import dynamic_batch as plain_module
from ...kit.api.types import Delta, Event, Finish, Generation, Request, Sampling, Started, Token, TopToken
from ...kit.djl import hosting
from ...kit.hosts.host import Host, client, model_directory, start
from ...kit.rows import each_row
from ...kit.user_code.engine import ScriptedEngine

pytestmark = pytest.mark.once

END = Finish("eos", generated_tokens=1)
LONG = "\N{LATIN SMALL LETTER E WITH ACUTE}\N{GRINNING FACE}a" * 1000
"""Longer than a field of FEW bytes, and no piece of it may end at any byte."""
FEW = 3000
BODIES: dict[str, dict[str, Any]] = {
    "lmi": {"inputs": "Hi", "dialect": "lmi"},
    "tgi": {"inputs": "Hi", "dialect": "tgi"},
    "azure": {"messages": [{"role": "user", "content": "Hi"}], "dialect": "azure"},
    "minimal": {"model": "a", "messages": [{"role": "user", "content": "Hi"}], "dialect": "minimal"},
    "dynamic": {"inputs": "Hi", "dialect": "dynamic"},
    "chat": {"messages": [{"role": "user", "content": "Hi"}], "dialect": "openai"},
    "completions": {"prompt": "Hi", "dialect": "openai"},
}
"""By what makes the reply; `dialect` is the request's attribute, no field."""


def service_of(folder: Path, **options: str) -> tuple[ScriptedEngine, Service]:
    engine = ScriptedEngine()
    service = started_service(engine, folder, **options)
    return engine, service


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields of FEW bytes, and pieces of a third."""
    for module in (frames_module, plain_module):
        monkeypatch.setattr(module, "SLICE", FEW // 3, raising=False)
        monkeypatch.setattr(module, "WHOLE", FEW // 3, raising=False)
        monkeypatch.setattr(module, "FIELD", FEW, raising=False)


def asked(kind: str, **more: Any) -> Request:
    body = {**BODIES[kind], **more}
    attributes = {"dialect": body.pop("dialect")}
    return Request(json.dumps(body).encode(), attributes=attributes)


def answered(events: list[Event], request: Request, folder: Path, **options: str) -> tuple[Exchange, ScriptedEngine]:
    engine, service = service_of(folder, **options)
    opened = service.open(request)
    engine.say(0, *events)
    return opened, engine


@settings(max_examples=40)
@given(text=st.text(max_size=40), size=st.integers(4, 12))
def test_pieces_are_the_record_and_none_ends_within_a_character(text: str, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames_module, "SLICE", size)
        pieces = slices(text.encode())
        records = deque([b"before", text.encode()])
        taken = [next_slice(records) for _ in range(len(slices(b"before")) + len(pieces))]
    assert b"".join(pieces) == text.encode()
    assert "".join(piece.decode() for piece in pieces) == text
    assert all(0 < len(piece) <= size for piece in pieces) or not text
    assert not records
    assert b"".join(taken) == b"before" + text.encode()


@each_row("merge", ["true", "false"])
@each_row("kind", ["lmi", "chat"])
@pytest.mark.usefixtures("narrow")
def test_a_rolling_batch_has_no_frame_that_java_does_not_take(tmp_path: Path, kind: str, merge: str) -> None:
    """Pieces that each are text, another request's answer beside, and an empty last frame."""
    engine, service = service_of(tmp_path, merge_records=merge)
    batch = RollingBatch(service, 0.0)
    batch.step([asked(kind), asked("lmi")])
    engine.say(0, Started(1), Delta(0, LONG, finish=END))
    engine.say(1, Started(1), Delta(0, "short", finish=END))
    frames, other = zip(batch.step([None, None]), strict=True)
    assert other[0].last
    assert json.loads(other[0].data) == {"generated_text": "short"}
    long = [*frames]
    while not long[-1].last:
        long += batch.step([None])
    assert [frame.last for frame in long] == [*(False for _ in long[1:]), True]
    assert long[-1].data == b""
    assert all(len(frame.data) <= FEW // 3 for frame in long)
    assert LONG in json.dumps(json.loads("".join(frame.data.decode() for frame in long)), ensure_ascii=False)
    assert long[0].headers
    assert not any(frame.headers for frame in long[1:])


@each_row("stream", [False, True])
@each_row("kind", ["lmi", "chat"])
@pytest.mark.usefixtures("narrow")
def test_a_whole_answer_is_one_frame_where_a_field_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, stream: bool
) -> None:
    monkeypatch.setattr(frames_module, "WHOLE", len(json.dumps(LONG)))
    engine, service = service_of(tmp_path)
    batch = RollingBatch(service, 0.0)
    batch.step([asked(kind, stream=stream)])
    engine.say(0, Started(1), Delta(0, LONG, finish=END))
    (frame,) = batch.step([None])
    assert frame.last is not stream
    assert (len(frame.data) > FEW) is not stream


@pytest.mark.anyio
@pytest.mark.usefixtures("narrow")
async def test_async_mode_has_no_frame_that_java_does_not_take(tmp_path: Path) -> None:
    engine, service = service_of(tmp_path)
    courier = AsyncBatcher(service)
    messages = courier.messages(asked("chat"), "1")
    coming = asyncio.ensure_future(anext(messages))
    await asyncio.sleep(0)
    engine.say(0, Started(1), Delta(0, LONG, finish=END))
    message = await coming
    courier.sent()
    assert [one async for one in messages] == []
    sizes: list[int] = []
    position = 0
    while (found := message.find(b"data", position)) >= 0:
        start = found + 8
        size = int.from_bytes(message[found + 4 : start], "big")
        sizes.append(size)
        position = start + size
    assert sizes[-1] == 0
    assert max(sizes) <= FEW // 3
    assert sum(sizes) > FEW


@pytest.mark.usefixtures("narrow")
def test_a_dynamic_batch_of_one_is_sent_in_pieces(tmp_path: Path) -> None:
    engine, service = service_of(tmp_path, rolling_batch="disable")
    engine.submit_then = [Started(1), Delta(0, LONG, finish=END)]
    answer = PlainBatch(service).answer(asked("lmi"))
    assert isinstance(answer, Chunks)
    pieces = list(answer.records)
    assert max(map(len, pieces)) <= FEW // 3
    assert json.loads(b"".join(pieces)) == {"generated_text": LONG}


@pytest.mark.usefixtures("narrow")
def test_a_dynamic_batch_of_several_has_an_error_in_its_place(tmp_path: Path) -> None:
    engine, service = service_of(tmp_path, rolling_batch="disable")
    engine.submit_then = [Started(1), Delta(0, LONG, finish=END)]
    first, second = PlainBatch(service).answers([asked("lmi"), asked("chat")])
    assert isinstance(first, Whole)
    expected = f"expected at most {FEW} in a batch"
    assert expected in json.loads(first.body)["error"]
    assert expected in json.loads(second.body)["error"]["message"]


@pytest.mark.usefixtures("narrow")
def test_a_dynamic_batchs_answer_may_be_as_long_as_a_field(tmp_path: Path) -> None:
    frame = len(b'{"generated_text":""}')
    for more, refused in ((0, False), (1, True)):
        engine, service = service_of(tmp_path, rolling_batch="disable")
        engine.submit_then = [Started(1), Delta(0, "a" * (FEW - frame + more), finish=END)]
        whole, _ = PlainBatch(service).answers([asked("lmi"), asked("lmi")])
        assert (b"in a batch" in whole.body) is refused


# --- Pages, which need no engine ---

PAGE = "/v1/responses/{id}/input_items"


def page_of(engine: ScriptedEngine, ask: Callable[[Request], bytes]) -> Request:
    """A request for the input items of a response that is kept, which hold LONG."""
    asked = {"input": LONG, "store": True}
    attributes = {"route": "/v1/responses"}
    engine.submit_then = [Started(1), Delta(0, "short", finish=END)]
    kept = json.loads(ask(Request(json.dumps(asked).encode(), attributes=attributes)))
    return Request(b"{}", attributes={"route": f"GET {PAGE.replace('{id}', kept['id'])}"})


def is_the_page(body: bytes) -> None:
    (item,) = json.loads(body)["data"]
    assert item["content"] == [{"type": "input_text", "text": LONG}]


@pytest.mark.usefixtures("narrow")
def test_a_page_in_a_rolling_batch(tmp_path: Path) -> None:
    """Another request beside it goes on."""
    engine, service = service_of(tmp_path, response_store="true")
    batch = RollingBatch(service, 0.0)

    def ask(request: Request) -> bytes:
        frames = batch.step([request])
        while not frames[-1].last:
            frames += batch.step([None])
        return b"".join(frame.data for frame in frames)

    page = page_of(engine, ask)
    engine.submit_then = []
    steps = [batch.step([asked("lmi"), page])]
    while not steps[-1][1].last:
        steps.append(batch.step([None, None]))
    engine.say(max(engine.sinks), Started(1), Delta(0, "beside", finish=END))
    (beside,) = batch.step([None])
    assert json.loads(beside.data) == {"generated_text": "beside"}
    frames = [step[1] for step in steps]
    assert len(frames) > 3
    assert [len(frame.data) <= FEW // 3 for frame in frames] == [True] * len(frames)
    assert frames[-1].data == b""
    assert frames[0].headers
    assert not any(frame.headers for frame in frames[1:])
    is_the_page(b"".join(frame.data for frame in frames))


def whole_of(service: Service, request: Request) -> bytes:
    """The answer to a request whose engine has said all at once."""
    exchange = service.open(request)
    assert isinstance(exchange, Exchange)
    return exchange.take_all()


@pytest.mark.usefixtures("narrow")
def test_a_page_in_a_dynamic_batch(tmp_path: Path) -> None:
    engine, service = service_of(tmp_path, rolling_batch="disable", response_store="true")
    page = page_of(engine, lambda request: whole_of(service, request))
    answer = PlainBatch(service).answer(page)
    assert isinstance(answer, Chunks)
    pieces = list(answer.records)
    assert max(map(len, pieces)) <= FEW // 3
    is_the_page(b"".join(pieces))
    for one in PlainBatch(service).answers([page, page]):
        assert f"expected at most {FEW} in a batch" in json.loads(one.body)["error"]["message"]


# --- option.max_answer_bytes ---


@each_row(("more", "ended"), [(1, False), (0, False), (-1, True)])
@each_row("kind", BODIES)
def test_the_body_at_the_limit(tmp_path: Path, kind: str, more: int, ended: bool) -> None:
    events: list[Event] = [Started(1), Delta(0, "Hello " * 100, finish=END)]
    (body,) = answered(events, asked(kind), tmp_path)[0].records
    exchange, engine = answered(events, asked(kind), tmp_path, max_answer_bytes=str(len(body) + more))
    assert exchange.finished
    assert not engine.sinks
    assert (exchange.failure is not None) is ended
    if ended:
        (told,) = exchange.records
        assert isinstance(exchange.failure, ParameterError)
        assert exchange.call.reply.status >= 400
        assert b"option.max_answer_bytes" in told
        assert b"(n, max_tokens)" in told


def shown(count: int, likely: int) -> tuple[Token, ...]:
    top = tuple(TopToken(number, "a", -0.5) for number in range(likely))
    return tuple(Token(1, "a", -0.5, top=top) for _ in range(count))


@each_row(("more", "ended"), [(1, False), (0, False), (-1, True)])
def test_tokens_count_before_they_are_a_body(tmp_path: Path, more: int, ended: bool) -> None:
    """The request ends where they are too many, not when all of them are there."""
    request = asked("chat", n=2, logprobs=True, top_logprobs=20)
    limit = 30 * 21 * TOKEN + 30 + more
    engine, service = service_of(tmp_path, max_answer_bytes=str(limit))
    exchange = service.open(request)
    other = service.open(asked("lmi"))
    assert isinstance(exchange, Exchange)
    assert isinstance(other, Exchange)
    engine.say(0, Started(1), Delta(0, "a" * 30, shown(30, 20), Finish("length", last=False)))
    assert exchange.finished is ended
    assert engine.aborted == ([0] if ended else [])
    engine.say(1, Started(1), Delta(0, "right", finish=END))
    assert list(other.records) == [b'{"generated_text":"right"}']


def test_a_stream_may_be_of_any_length(tmp_path: Path) -> None:
    exchange, _ = answered(
        [Started(1), Delta(0, "a" * 50, shown(50, 0)), Delta(0, "", finish=END)],
        asked("lmi", stream=True),
        tmp_path,
        max_answer_bytes="10",
    )
    assert exchange.finished
    assert exchange.failure is None


@each_row(("more", "ended"), [(0, False), (-1, True)])
def test_a_prompts_tokens_count_for_each_sequence(tmp_path: Path, more: int, ended: bool) -> None:
    """An echo shows them in each choice."""
    request = asked("completions", n=3, logprobs=5, prompt_logprobs=5, echo=True)
    events: list[Event] = [Started(10, prefill=shown(10, 5), text="a" * 10)]
    size = 3 * (10 * 6 * TOKEN + 10)
    exchange, engine = answered(events, request, tmp_path, max_answer_bytes=str(size + more))
    assert exchange.finished is ended
    assert engine.aborted == ([0] if ended else [])


def test_what_an_engine_can_tell_beforehand() -> None:
    """At the limit, and one beyond it."""
    n, tokens = 4, 100
    sampling = Sampling(n=n, logprobs=5, prompt_logprobs=5)
    generation = Generation(request_id="a", prompt="a", sampling=sampling, tokens=True)
    most = n * tokens * 6 * TOKEN
    check_size(generation, tokens, most)
    with pytest.raises(ParameterError, match="max_answer_bytes"):
        check_size(generation, tokens, most - 1)
    bare = Generation(request_id="a", prompt="a", sampling=Sampling(n=n))
    check_size(bare, tokens, 0)


# --- Behind the real hosts ---

COUNT = 128
TOKENS = 140


def body(tokens: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Count up."}]
    wanted = {"n": COUNT, "max_tokens": tokens, "ignore_eos": True, "logprobs": True, "top_logprobs": 20}
    return {"messages": messages, **wanted}


@pytest.fixture(scope="module")
def dynamic(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The real DJL engine with dynamic batches."""
    if missing := hosting.available():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("dynamic")
    properties = {"option.rolling_batch": "disable"}
    running = start("dynamic", model_directory(demo_model, folder / "model", properties), folder / "log")
    yield running
    running.stop()


def is_right(answer: httpx.Response) -> None:
    assert answer.status_code == 200, answer.text[:500]
    assert len(answer.content) > FIELD
    told = answer.json()
    assert told["usage"]["completion_tokens"] == COUNT * TOKENS
    assert [choice["index"] for choice in told["choices"]] == [*range(COUNT)]
    for choice in told["choices"]:
        entries = choice["logprobs"]["content"]
        # Special tokens are not shown.
        assert TOKENS // 2 < len(entries) <= TOKENS
        assert {len(entry["top_logprobs"]) for entry in entries} == {20}
        written = b"".join(bytes(entry["bytes"]) for entry in entries).decode(errors="replace")
        assert written.startswith(choice["message"]["content"].rstrip("\N{REPLACEMENT CHARACTER}"))


@pytest.mark.engine
@pytest.mark.djl
@pytest.mark.slow
@pytest.mark.anyio
async def test_an_answer_that_is_longer_than_a_field_comes_whole(host: Host) -> None:
    plain = question("long")
    beside = {"inputs": plain.prompt, "parameters": {"max_new_tokens": 200}, "stream": True}
    async with client(host) as http:
        big, stream, short = await asyncio.gather(
            http.post(body(TOKENS)), http.stream(beside), http.post({**beside, "stream": False})
        )
        is_right(big)
        assert stream.documents[-1]["generated_text"] == plain.answer
        assert short.json() == {"generated_text": plain.answer}


@pytest.mark.engine
@pytest.mark.djl
@pytest.mark.slow
@pytest.mark.anyio
async def test_an_answer_that_would_be_too_long_ends_alone(host: Host, request: pytest.FixtureRequest) -> None:
    """On its way: 128 times 450 tokens with 20 likely ones each are 155 MB as the limit counts.

    Behind DJL before it begins, for the prompt's own, as DJL waits a minute for an answer's beginning.
    """
    plain = question("long")
    beside = {"inputs": plain.prompt, "parameters": {"max_new_tokens": 200}}
    asked = body(450)
    if request.node.callspec.params["host"] != "server":
        asked["messages"][0]["content"] = "word " * 400
        asked |= {"prompt_logprobs": 20, "max_tokens": 1}
    async with client(host) as http:
        big, short = await asyncio.gather(http.post(asked), http.post(beside))
        assert big.status_code == 400
        told = big.json()["error"]
        assert "option.max_answer_bytes" in (told if isinstance(told, str) else told["message"])
        assert short.json() == {"generated_text": plain.answer}
        assert (await http.post(beside)).json() == {"generated_text": plain.answer}


@pytest.mark.engine
@pytest.mark.djl
@pytest.mark.slow
@pytest.mark.anyio
async def test_an_answer_alone_in_its_dynamic_batch_comes_whole(dynamic: Host) -> None:
    plain = question("plain")
    async with client(dynamic) as http:
        is_right(await http.post(body(TOKENS)))
        answer = await http.post({"inputs": plain.prompt, "parameters": {"max_new_tokens": 200}})
        assert answer.json() == [{"generated_text": plain.answer}]
