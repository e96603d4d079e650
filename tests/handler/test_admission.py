"""What is beyond a limit is refused or ended, at the limit itself and below it is not: without an engine, and no clock.

tests/robustness/test_limits.py shows the same behind the hosts.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ..kit.api.engine import TokenBudget
from ..kit.api.errors import (
    GenerationError,
    LmiError,
    OverloadedError,
    ParameterError,
    SlowReaderError,
    TimeLimitError,
    TooLargeError,
)
from ..kit.api.handler import (
    Exchange,
    PlainBatch,
    RollingBatch,
    Watch,
    Whole,
    answer_of,
    frame_of_response,
    headers_of,
    next_slice,
    started_service,
)
from ..kit.api.types import Delta, Event, Failed, Finish, Request, Response, Started, Token
from ..kit.rows import each_row
from ..kit.user_code.engine import ScriptedEngine
from ..kit.waiting import until

HELLO = b'{"inputs": "Hi"}'
STREAM = b'{"inputs": "Hi", "stream": true}'
END = Finish("eos", generated_tokens=1)
WORD = Token(7, "Hello", -0.5)


class Place:
    """A service on an engine that says what the test tells it to."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.engine = ScriptedEngine()
        self.service = started_service(self.engine, folder, **options)

    def open(self, body: bytes = HELLO, **request: Any) -> Exchange:
        return self.service.open(Request(body, **request))

    def refused(self, body: bytes = HELLO, **request: Any) -> Response:
        return answer_of(self.service.open(Request(body, **request)))

    def end(self, ticket: int) -> None:
        self.engine.say(ticket, Started(1), Delta(0, "Hello", finish=END))

    def pass_time(self, seconds: float) -> None:
        """What the watch does when so much time has passed since now."""
        self.service.admission.sweep(time.monotonic() + seconds)


PLACES: list[Place] = []


def place(tmp_path: Path, **options: str) -> Place:
    PLACES.append(Place(tmp_path, **options))
    return PLACES[-1]


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    while PLACES:
        PLACES.pop().service.close()


class Noted(deque[bytes]):
    """Records, and how many requests were in flight whenever a host could first see some of them."""

    def __init__(self, made: Place) -> None:
        super().__init__()
        self.in_flight: list[int] = []
        self._made = made

    def append(self, record: bytes) -> None:
        self.extend([record])

    def extend(self, records: Iterable[bytes]) -> None:
        added = list(records)
        if added:
            self.in_flight.append(self._made.service.metrics.in_flight)
        super().extend(added)


@each_row(
    ("body", "events", "in_flight"),
    [
        (HELLO, [Delta(0, "Hello", finish=END)], [0]),
        (HELLO, [Failed.of(GenerationError("gone"))], [0]),
        (STREAM, [Failed.of(GenerationError("gone"))], [0]),
        (STREAM, [Delta(0, "Hello", (WORD,)), Delta(0, "!", (WORD,), END)], [1, 0]),
        (STREAM, [Delta(0, "Hello", (WORD,)), Failed.of(GenerationError("gone"))], [1, 0]),
    ],
)
def test_a_request_has_ended_before_its_last_record_can_be_seen(
    tmp_path: Path, body: bytes, events: list[Event], in_flight: list[int]
) -> None:
    """Who has read an answer finds it counted, and no host takes its end for a record of an answer that goes on."""
    made = place(tmp_path)
    exchange = made.open(body)
    records = exchange.records = Noted(made)
    made.engine.say(0, Started(1), *events)
    assert exchange.finished
    assert records.in_flight == in_flight


def test_a_request_leaves_its_place_before_it_is_seen_to_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that asks again as soon as it has its answer is not refused because of the answer that it has."""
    made = place(tmp_path)
    admission = made.service.admission
    release = admission.release
    ended: list[bool] = []

    def noting(exchange: Any) -> None:
        ended.append(exchange.finished)
        release(exchange)

    monkeypatch.setattr(admission, "release", noting)
    exchange = made.open()
    made.end(0)
    made.open().abort()
    assert (exchange.finished, ended, admission.open) == (True, [False, False], 0)


# --- Requests that are open ---


def test_queue(tmp_path: Path) -> None:
    made = place(tmp_path, max_rolling_batch_size="2", max_queued_requests="1")
    opened = [made.open() for _ in range(3)]
    refused = made.refused()
    assert (refused.status, json.loads(refused.body)["code"]) == (429, 429)
    assert "3 requests are open, expected fewer than 3" in json.loads(refused.body)["error"]
    made.end(0)
    assert opened[0].finished
    opened.append(made.open())
    opened[1].abort()
    opened.append(made.open())
    assert made.refused().status == 429
    for ticket in range(2, 5):
        made.end(ticket)
    assert all(exchange.finished for exchange in opened)
    assert made.service.admission.open == 0


def test_a_request_with_several_prompts_counts_as_so_many(tmp_path: Path) -> None:
    made = place(tmp_path, max_rolling_batch_size="1", max_queued_requests="1")
    several = made.open(b'{"prompt": ["one", "two"], "max_tokens": 5}')
    assert made.refused().status == 429
    made.end(0)
    made.open()
    assert made.refused().status == 429
    assert not several.finished


OVERLOADED: list[tuple[bytes, dict[str, Any], dict[str, Any]]] = [
    (HELLO, {}, {"error": "", "code": 429}),
    (STREAM, {}, {"error": "", "code": 429}),
    (b'{"messages": []}', {}, {"error": {"message": "", "type": "rate_limit_error", "param": None, "code": ""}}),
    (b"{}", {"path": "/v1/completions"}, {"error": {"message": "", "type": "", "param": None, "code": ""}}),
    (HELLO, {"path": "/generate"}, {"error": "", "error_type": "overloaded"}),
    (b"{}", {"path": "/chat/completions"}, {"error": {"message": "", "type": "", "code": "rate_limit_exceeded"}}),
    (
        b"{}",
        {"path": "/chat/completions", "query": {"api-version": "2024-05-01-preview"}},
        {"error": "Too Many Requests", "message": "", "status": 429},
    ),
    (b"not JSON", {}, {"error": "", "code": 429}),
]


@each_row(("body", "request_", "shape"), OVERLOADED, ids=range(len(OVERLOADED)))
def test_each_dialect_says_it_in_its_own_form(
    tmp_path: Path, body: bytes, request_: dict[str, Any], shape: dict[str, Any]
) -> None:
    made = place(tmp_path, max_rolling_batch_size="1", max_queued_requests="0")
    made.open()
    refused = made.refused(body, **request_)
    told = json.loads(refused.body)
    assert refused.status == 429
    assert told.keys() == shape.keys()
    for key, expected in shape.items():
        if isinstance(expected, dict):
            assert told[key].keys() == expected.keys()
            assert {name: told[key][name] for name, value in expected.items() if value} == {
                name: value for name, value in expected.items() if value
            }
        elif expected:
            assert told[key] == expected
    assert headers_of(refused)["Retry-After"] == "1"
    # What will not be better later has no such header.
    assert "Retry-After" not in frame_of_response(place(tmp_path).refused(b"not JSON")).headers


def test_rolling_batch_tells_it_with_the_status_and_the_header(tmp_path: Path) -> None:
    made = place(tmp_path, max_rolling_batch_size="1", max_queued_requests="0")
    batch = RollingBatch(made.service, poll_timeout=0)
    _, refused = batch.step([Request(HELLO), Request(STREAM)])
    assert (refused.code, refused.last, refused.headers["Retry-After"]) == (429, True, "1")
    assert isinstance(refused.failure, OverloadedError)


# --- The body ---


def body_of(size: int) -> bytes:
    return HELLO + b" " * (size - len(HELLO))


def test_body(tmp_path: Path) -> None:
    made = place(tmp_path, max_body_bytes="100")
    made.open(body_of(99))
    made.open(body_of(100))
    refused = made.refused(body_of(101))
    assert isinstance(refused.failure, TooLargeError)
    assert json.loads(refused.body) == {
        "error": "the body: expected at most 100 bytes (option.max_body_bytes), got 101",
        "code": 413,
    }
    refused = made.refused(body_of(101), path="/v1/completions")
    assert (refused.status, json.loads(refused.body)["error"]["code"]) == (413, "request_too_large")


@each_row("kind", ["multipart/form-data; boundary=x", "audio/wav", "Video/MP4"])
def test_a_file_may_be_as_long_as_audio(tmp_path: Path, kind: str) -> None:
    """Whatever JSON may be; of a form what stands beside the file, too."""
    made = place(tmp_path, max_body_bytes="100", max_audio_bytes="1000")
    most = 1000 + (64 << 10)
    refusal, headers = made.service.admission.refusal, {"content-type": kind}
    assert refusal(Request(bytes(most), headers=headers)) is None
    assert isinstance(refusal(Request(bytes(most + 1), headers=headers)), TooLargeError)
    assert isinstance(refusal(Request(bytes(most))), TooLargeError)


# --- Prompts and tokens ---


def test_in_flight() -> None:
    flight = TokenBudget(100)
    flight.admit(1, 60)
    with pytest.raises(OverloadedError, match="60 tokens are in flight and this request may come to 41"):
        flight.admit(2, 41)
    flight.admit(3, 40)
    assert flight.total == 100
    with pytest.raises(OverloadedError):
        flight.admit(4, 1)
    flight.release_ended([(3, Started(1)), (3, Delta(0, "a")), (3, Delta(0, "b", finish=Finish("eos", last=False)))])
    assert flight.total == 100
    flight.release_ended([(3, Delta(1, "b", finish=END)), (9, Delta(0, "", finish=END))])
    flight.admit(6, 40)
    flight.drop([6])
    flight.release_ended([(1, Failed("GenerationError", "no"))])
    flight.drop([1, 2, 3])
    assert flight.total == 0
    flight.admit(5, 100)
    flight.drop([5, 5])
    assert flight.total == 0


def test_what_could_never_be_in_flight_is_the_clients_fault() -> None:
    with pytest.raises(ParameterError, match="may come to 101 tokens, expected at most 100"):
        TokenBudget(100).admit(1, 101)


# --- Time ---


@each_row(("body", "status"), [(HELLO, 424), (STREAM, 424), (b'{"prompt": ["a", "b"]}', 504)])
def test_time_before_the_first_record(tmp_path: Path, body: bytes, status: int) -> None:
    made = place(tmp_path, request_timeout="50")
    exchange = made.open(body)
    made.pass_time(49)
    assert exchange.begun is False
    made.pass_time(50)
    failure: LmiError | None = exchange.call.reply.failure
    assert isinstance(failure, TimeLimitError)
    assert exchange.call.reply.status == status
    assert b"the request took longer than 50 seconds (option.request_timeout)" in exchange.records[0]
    assert made.engine.running == 0
    assert made.service.admission.open == 0


def test_time_in_mid_stream(tmp_path: Path) -> None:
    made = place(tmp_path, request_timeout="50")
    made.open()
    streamed = made.open(b'{"messages": [{"role": "user", "content": "Hi"}], "stream": true}')
    made.engine.say(1, Started(1), Delta(0, "Hel"))
    before = len(streamed.records)
    made.pass_time(51)
    *_, error, done = streamed.records
    assert len(streamed.records) == before + 2
    assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "time_limit_exceeded"
    assert done == b"data: [DONE]\n\n"
    assert streamed.call.reply.status == 200
    # What the engine still says of it goes nowhere.
    made.engine.say(1, Delta(0, "lo", finish=END))
    assert len(streamed.records) == before + 2


def test_only_the_old_ones_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = place(tmp_path, request_timeout="50")
    times = iter([1000.0, 1010.0])
    monkeypatch.setattr("lmi.handler.admission.time", SimpleNamespace(monotonic=lambda: next(times)))
    old, new = made.open(), made.open()
    assert made.service.admission.sweep(1050.1) == 1060
    assert (old.finished, new.finished) == (True, False)
    made.end(1)
    assert made.service.admission.sweep(1050.1) == 1100.1


def test_a_request_that_expires_while_it_is_handed_to_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = place(tmp_path, request_timeout="50")
    submit = made.engine.submit

    def slow(*arguments: Any) -> int:
        if not made.engine.generations:
            made.pass_time(50)
        return submit(*arguments)

    monkeypatch.setattr(made.engine, "submit", slow)
    exchange = made.open(b'{"prompt": ["a", "b"]}')
    assert isinstance(exchange.failure, TimeLimitError)
    assert made.engine.running == 0


def test_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    looked: list[float] = []
    enough = threading.Event()

    def broken(_now: float) -> float:
        raise ValueError("broken")

    def sweep(now: float) -> float:
        looked.append(now)
        if len(looked) == 3:
            enough.set()
        return now

    watch = Watch(broken, sweep)
    with caplog.at_level(logging.CRITICAL):
        watch.start()
        assert enough.wait(30)
        watch.close()
    assert looked == sorted(looked)


# --- Clients that do not read ---


def tokens(count: int) -> Delta:
    return Delta(0, "a" * count, tuple(Token(1, "a", -0.5) for _ in range(count)))


def size_of(tmp_path: Path, count: int) -> int:
    """Of the records of so many tokens, but for the first one."""
    made = place(tmp_path)
    exchange = made.open(STREAM)
    made.engine.say(0, Started(1), tokens(count))
    assert len(exchange.records) == count
    return sum(map(len, exchange.records)) - len(exchange.records[0])


class Clock:
    """What exchanges take for the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("lmi.handler.unsent.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize(("more", "ended"), [(1, False), (0, False), (-1, True)])
def test_unread(tmp_path: Path, clock: Clock, more: int, ended: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Five seconds after there was too much, and not before."""
    limit = size_of(tmp_path, 40) + more
    made = place(tmp_path, max_unsent_bytes=str(limit))
    exchange = made.open(STREAM, request_id="slow-one")
    made.engine.say(0, Started(1), tokens(40))
    clock.now += 4.9
    made.engine.say(0, tokens(1))
    before = exchange.finished
    clock.now += 0.2
    made.engine.say(0, tokens(1))
    assert (before, exchange.finished) == (False, ended)
    assert made.engine.running == (0 if ended else 1)
    if ended:
        assert len(exchange.records) == 43
        message = f"{limit + 1} bytes are waiting for a slow client, expected at most {limit}"
        assert message in json.loads(exchange.records[-1])["error"]
        assert "request slow-one ended" in caplog.text


def test_unread_token_by_token_is_noticed_before_long(tmp_path: Path, clock: Clock) -> None:
    limit = size_of(tmp_path, 1000)
    made = place(tmp_path, max_unsent_bytes=str(limit))
    exchange = made.open(STREAM)
    made.engine.say(0, Started(1))
    count = 0
    while not exchange.finished:
        made.engine.say(0, tokens(1))
        count += 1
        if count > 1000:
            clock.now += 0.01
    # Between two looks there are a few records, or none could bring it over the limit.
    assert 1500 < count <= 1500 + 16 + 2


def big(prompt: str = "a") -> Delta:
    """Far more than may wait, in a record, as the echo of a long prompt with its log-probabilities is."""
    return Delta(0, prompt * 5000, (Token(1, prompt * 5000, -0.5),))


def words(count: int) -> list[list[Event]]:
    """Steps of a token each."""
    return [[tokens(1)] for _ in range(count)]


Take = Callable[[Exchange], object]
FAST: dict[str, tuple[list[list[Event]], Take]] = {
    "one": ([[big()]], lambda exchange: exchange.records.clear()),
    "nobody had the time": ([[big()], [tokens(1)], [big()], [tokens(9)]], lambda _: None),
    "several of one step": ([[big(), big(), tokens(5), big()]], lambda exchange: exchange.records.clear()),
    "a reader of one record a step": (
        [[big(), big(), big(), big()], *words(9)], lambda exchange: exchange.records.popleft(),
    ),
    "a host that sends pieces": (
        [[big(), big()], *words(20)],
        lambda exchange: [next_slice(exchange.records) for _ in range(2) if exchange.records],
    ),
    "a record that is sent for longer": ([[big()], *words(9)], lambda _: None),
}  # fmt: skip


@each_row("which", FAST)
def test_a_fast_reader_is_not_called_slow(
    tmp_path: Path, clock: Clock, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a single record is, and however many come at once."""
    monkeypatch.setattr("lmi.handler.djl.frames.SLICE", 2000)
    made = place(tmp_path, max_unsent_bytes="4000")
    exchange = made.open(STREAM)
    made.engine.say(0, Started(1))
    steps, take = FAST[which]
    pause = 1.0 if len(steps) < 9 else 2.0
    for events in steps:
        made.engine.say(0, *events)
        clock.now += pause
        take(exchange)
    made.engine.say(0, tokens(1))
    assert not exchange.finished, exchange.failure


@each_row("steps", [[[big(), big()]], [[big()], [tokens(200)]], [[tokens(1)], [tokens(500)]]])
def test_a_reader_that_takes_less_than_comes_is_slow(tmp_path: Path, clock: Clock, steps: list[list[Event]]) -> None:
    """Though it takes something now and then."""
    made = place(tmp_path, max_unsent_bytes="4000")
    exchange = made.open(STREAM)
    made.engine.say(0, Started(1))
    for _ in range(40):
        for events in steps:
            made.engine.say(0, *events)
        clock.now += 1
        if exchange.records:
            exchange.records.popleft()
    assert isinstance(exchange.failure, SlowReaderError)


def test_streams_in_a_batch_have_no_slow_reader(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java has their answers when all are complete."""
    made = place(tmp_path, max_unsent_bytes="1000", rolling_batch="disable")
    answers: list[Whole] = []
    opened: list[Exchange] = []
    open_one = made.service.open

    def kept(*arguments: Any, **named: Any) -> Exchange:
        opened.append(exchange := open_one(*arguments, **named))
        return exchange

    monkeypatch.setattr(made.service, "open", kept)

    def ask() -> None:
        answers.extend(PlainBatch(made.service).answers([Request(STREAM)] * 2))

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: not (made.engine.running < 2))
    for number in range(2):
        made.engine.say(number, Started(1), tokens(100))
        for _ in range(5):
            clock.now += 2
            made.engine.say(number, tokens(10))
            # The clock is the test's: the batch's thread takes them before it goes on.
            until(lambda: not any(exchange.records for exchange in opened))
        made.engine.say(number, Delta(0, "", finish=END))
    asking.join(30)
    assert [(answer.status, answer.body.count(b"outputs")) for answer in answers] == [(200, 150)] * 2


def test_a_whole_answer_is_never_too_long(tmp_path: Path) -> None:
    made = place(tmp_path, max_unsent_bytes="10")
    exchange = made.open()
    made.end(0)
    assert exchange.records[0] == b'{"generated_text":"Hello"}'


def test_errors_say_when_to_try_again() -> None:
    def kinds(kind: type[LmiError]) -> set[type[LmiError]]:
        return {kind}.union(*(kinds(below) for below in kind.__subclasses__()))

    later = {kind.__name__: kind.retry_after for kind in kinds(LmiError) if kind.retry_after is not None}
    assert later == {"OverloadedError": 1, "UnavailableError": 10}
