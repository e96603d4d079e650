"""The hosts' side of the table of faults (docs/robustness.md): one fault at each boundary, beside a request that runs.

In each of the hosts' modes the fault's own request ends at once with an error, the cause is in the log, and all others
go on. What the engine's side has of the table: tests/model/process/test_fault_isolation.py; faults of encoders, in all
dialects: tests/handler/test_reply_faults.py; of user code: tests/handler/user_code/.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from lmi.handler.exchange import Exchange

from ..kit.api.dialects import DIALECTS, Dialect, replace_member
from ..kit.api.handler import (
    READ_HEADERS,
    AsyncBatcher,
    Frame,
    PlainBatch,
    RollingBatch,
    Service,
    application,
    started_service,
)
from ..kit.api.types import Delta, Finish, Request, Started, Token
from ..kit.djl.outputs import outputs_of
from ..kit.rows import each_row
from ..kit.user_code.engine import ScriptedEngine, TalkingEngine
from ..kit.waiting import until

WAIT_S = 30.0
FILTER = "def judge(text, stage):\n    return None\n"


def fault(*_: Any, **__: Any) -> Any:
    raise KeyError("a fault")


@dataclass(frozen=True)
class Answer:
    """What a client gets of a request."""

    failed: bool
    body: str


# --- The hosts' modes: each takes requests that come together, and returns what their clients get ---


def rolling(service: Service, *requests: Request) -> list[Answer]:
    batch = RollingBatch(service, 0.001)
    frames: list[list[Frame]] = [[] for _ in requests]
    items: list[Request | None] = [*requests]
    running = [*range(len(requests))]
    deadline = time.monotonic() + WAIT_S
    while running:
        assert time.monotonic() < deadline, "a request has no end"
        for index, frame in zip(running, batch.step(items), strict=True):
            frames[index].append(frame)
        running = [index for index in running if not frames[index][-1].last]
        items = [None] * len(running)
    return [_answer_of_frames([_of_frame(frame) for frame in some]) for some in frames]


def _of_frame(frame: Frame) -> dict[str, str]:
    failed = {} if frame.failure is None else {"code": str(frame.code), "error": frame.failure.message}
    return {"data": frame.data.decode(), **failed}


def _answer_of_frames(frames: list[dict[str, str]]) -> Answer:
    body = "".join(frame["data"] for frame in frames)
    codes = [frame["code"] for frame in frames if "code" in frame]
    assert all(int(code) >= 400 for code in codes), codes
    return Answer(bool(codes) or '"error"' in body, body)


def asynchronous(service: Service, *requests: Request) -> list[Answer]:
    async def carry(batcher: AsyncBatcher, request: Request, name: str, sent: list[bytes]) -> None:
        async for message in batcher.messages(request, name):
            sent.append(message)
            batcher.sent()

    async def main() -> list[bytes]:
        batcher, sent = AsyncBatcher(service), list[bytes]()
        running = [carry(batcher, request, str(index), sent) for index, request in enumerate(requests)]
        await asyncio.wait_for(asyncio.gather(*running), WAIT_S)
        return sent

    told = [one for message in asyncio.run(main()) for one in outputs_of(message)]
    return [_answer_of_frames([one.frame for one in told if one.whose == str(i)]) for i in range(len(requests))]


def dynamic(service: Service, *requests: Request) -> list[Answer]:
    return [Answer(whole.status >= 424, whole.body.decode()) for whole in PlainBatch(service).answers(requests)]


def server(service: Service, *requests: Request) -> list[Answer]:
    async def main() -> list[httpx.Response]:
        app = application(service)
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            asked = [client.post("/invocations", content=request.body) for request in requests]
            return await asyncio.wait_for(asyncio.gather(*asked), WAIT_S)

    answers = asyncio.run(main())
    return [Answer(one.status_code >= 424 or '"error"' in one.text, one.text) for one in answers]


MODES: dict[str, Callable[..., list[Answer]]] = {
    "rolling": rolling,
    "async": asynchronous,
    "dynamic": dynamic,
    "server": server,
}


# --- The boundaries: each makes something fail for the request of "bad" ---


@dataclass(frozen=True)
class Place:
    """A service on an engine that talks."""

    mode: str
    engine: TalkingEngine
    service: Service
    patch: pytest.MonkeyPatch

    def request(self, text: str) -> Request:
        stream = {} if self.mode == "dynamic" else {"stream": True}
        return Request(json.dumps({"inputs": text, **stream}).encode())

    def fail_for_bad(self, owner: Any, name: str, is_bad: Callable[..., bool]) -> None:
        """`owner.name` fails where `is_bad` says so of what it is given."""
        known = getattr(owner, name)

        def failing(*given: Any, **named: Any) -> Any:
            return fault() if is_bad(*given) else known(*given, **named)

        if isinstance(owner, Dialect):
            replace_member(self.patch, owner, name, failing)
        else:
            self.patch.setattr(owner, name, failing)

    def when_opened(self, then: Callable[[Exchange], None]) -> None:
        """Calls `then` with the bad request's exchange."""
        known = self.service.opener.open

        def opened(request: Request, on_news: Any, *, batched: bool) -> Exchange:
            exchange = known(request, on_news, batched=batched)
            if b"bad" in request.body:
                then(exchange)
            return exchange

        self.patch.setattr(self.service.opener, "open", opened)

    def fail_in(self, part: Callable[[Exchange], Any], name: str) -> None:
        """A method fails of what `part` gives of the bad request's exchange."""
        self.when_opened(lambda exchange: self.fail_for_bad(type(part(exchange)), name, _is(part(exchange))))


def _is(one: object) -> Callable[..., bool]:
    return lambda first, *_: first is one


def of_bad(request: Any, *_: Any) -> bool:
    return b"bad" in request.body


def parse(place: Place) -> None:
    for dialect in DIALECTS:
        place.fail_for_bad(dialect, "parse", lambda payload, *_: payload["inputs"] == "bad")


def refuse(place: Place) -> None:
    """Nor can the dialect say what has failed."""
    parse(place)
    for dialect in DIALECTS:
        place.fail_for_bad(dialect, "refuse", lambda error, payload, request, *_: of_bad(request))


def opening(place: Place) -> None:
    place.fail_for_bad(place.service.admission, "refusal", of_bad)


def submit(place: Place) -> None:
    place.fail_for_bad(place.engine, "submit", lambda generation, *_: generation.prompt == "bad")


def note(place: Place) -> None:
    place.fail_in(lambda exchange: exchange._meter, "note")


def end(place: Place) -> None:
    place.fail_in(lambda exchange: exchange._meter, "end")


def keep(place: Place) -> None:
    place.fail_in(lambda exchange: exchange._meter, "keep")


def feed(place: Place) -> None:
    place.fail_in(lambda exchange: exchange.call.reply, "feed")


def headers(place: Place) -> None:
    """Of the response, of which every host asks where it makes its frame, its part of a batch, its HTTP response."""

    def failing(exchange: Exchange) -> None:
        for module in READ_HEADERS:
            place.fail_for_bad(module, "headers_of", _is(exchange.call.reply))

    place.when_opened(failing)


def listener(place: Place) -> None:
    place.service.listen(fault)


TABLE: list[tuple[Callable[[Place], None], bool]] = [
    (parse, True), (refuse, True), (opening, True), (submit, True), (note, True), (keep, True), (feed, True),
    (headers, True), (end, False), (listener, False),
]  # fmt: skip
"""And whether the bad request fails: no answer depends on how its end is counted, or on a listener."""


@pytest.fixture
def engine() -> Iterator[TalkingEngine]:
    made = TalkingEngine("good")
    yield made
    made.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("boundary", "fails"), TABLE, ids=lambda value: getattr(value, "__name__", ""))
def test_a_fault_ends_its_own_request_alone(
    engine: TalkingEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mode: str,
    boundary: Callable[[Place], None],
    fails: bool,
) -> None:
    options = {"rolling_batch": "disable"} if mode == "dynamic" else {}
    service = started_service(engine, tmp_path, log_requests="true", **options)
    place = Place(mode, engine, service, monkeypatch)
    boundary(place)
    bad, good = MODES[mode](service, place.request("bad"), place.request("good"))
    assert '"generated_text":"ab"' in good.body
    assert not good.failed
    assert bad.failed is fails, bad
    if not fails:
        assert '"generated_text":"ab"' in bad.body
    monkeypatch.undo()
    (later,) = MODES[mode](service, place.request("later"))
    assert '"generated_text":"ab"' in later.body
    assert not engine.sinks
    assert service.admission.open == 0
    # What is at fault may come after the last record.
    until(lambda: "a fault" in caplog.text)


# --- Where user code runs ---

END = Finish("eos", generated_tokens=2)
STREAM = Request(b'{"inputs": "Hi", "stream": true}')


def failing_for(one: object, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that fails for one of its objects."""
    return lambda self, *given, **named: fault() if self is one else method(self, *given, **named)


@pytest.mark.parametrize(
    ("place", "user_code"),
    [*((place, True) for place in ("note", "end", "keep", "feed", "news", "listener")), ("news", False)],
)
def test_beside_user_code_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str, user_code: bool
) -> None:
    """What runs on the threads of user code, and the host's own part of a request."""
    (tmp_path / "model.py").write_text(FILTER)
    options = {"log_requests": "true", **({"content_filter": "model:judge"} if user_code else {})}
    engine = ScriptedEngine()
    service: Service = started_service(engine, tmp_path, **options)
    news: list[Exchange] = []
    if place == "listener":
        service.listen(fault)
        engine._listeners.remove(fault)
    bad = service.open(STREAM, fault if place == "news" else None)
    good = service.open(STREAM, news.append)
    assert isinstance(bad, Exchange)
    assert isinstance(good, Exchange)
    until(lambda: len(engine.sinks) == 2)
    if place in {"note", "end", "keep"}:
        stats = type(bad._meter)
        monkeypatch.setattr(stats, place, failing_for(bad._meter, getattr(stats, place)))
    if place == "feed":
        encoder = type(bad.call.reply)
        monkeypatch.setattr(encoder, place, failing_for(bad.call.reply, encoder.feed))
    for ticket in (0, 1):
        engine.say(ticket, Started(1), Delta(0, "a", (Token(1, "a", -0.5),)))
    for ticket in (0, 1):
        engine.say(ticket, Delta(0, "b", (Token(2, "b", -0.5),), END))
    until(lambda: bad.finished and good.finished)
    assert b'"generated_text":"ab"' in b"".join(good.records)
    assert good in news
    assert not engine.sinks
    assert service.admission.open == 0
    until(lambda: "a fault" in caplog.text)


# What makes each dialect ask itself about a request, and which of its members is at fault.
ASKING: dict[str, Callable[[Dialect], dict[str, Any]]] = {
    "matches": lambda dialect: dict.fromkeys(dialect.marks or ["nothing"], 1),
    "parse": lambda _: {"inputs": "bad"},
    "refuse": lambda _: {"nothing": 1},
}
FAULTS = [
    pytest.param(dialect, member, id=f"{dialect.name}-{member}")
    for dialect in DIALECTS
    for member in ASKING
    # Most are known by their marks alone.
    if getattr(dialect, member) is not None
]


@each_row("user_code", [False, True])
@each_row(("dialect", "member"), FAULTS)
def test_a_fault_of_a_dialect_before_anything_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, dialect: Dialect, member: str, user_code: bool
) -> None:
    """Behind DJL an exception here would end the step of all, and leave its own client waiting."""
    caplog.clear()
    (tmp_path / "model.py").write_text(FILTER)
    engine = TalkingEngine("good")
    service = started_service(engine, tmp_path, **({"content_filter": "model:judge"} if user_code else {}))
    attributes = {} if member == "matches" else {"dialect": dialect.name}
    body = json.dumps(ASKING[member](dialect)).encode()
    with pytest.MonkeyPatch.context() as patch:
        place = Place("rolling", engine, service, patch)
        place.fail_for_bad(
            dialect, member, lambda *given: any(getattr(one, "request_id", "") == "bad" for one in given)
        )
        bad, good = rolling(service, Request(body, attributes=attributes, request_id="bad"), place.request("good"))
    assert '"generated_text":"ab"' in good.body
    assert bad.failed
    assert "a fault" in caplog.text
    assert service.admission.open == 0
    service.close()
