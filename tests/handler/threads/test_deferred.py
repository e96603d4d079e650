"""User code runs apart: what is slow, raises or is aborted there concerns its own request only."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from lmi.handler.threads.deferred import Deferred

from ...kit.api.errors import OptionError
from ...kit.api.handler import NO_FRAME as NOTHING
from ...kit.api.handler import (
    AsyncBatcher,
    AsyncService,
    Exchange,
    InputFormatter,
    PlainBatch,
    Prepared,
    Relayed,
    RelayedReply,
    RollingBatch,
    Service,
    Whole,
    Workers,
    merge_deltas,
)
from ...kit.api.options import make_settings
from ...kit.api.types import CallDelta, Delta, EngineEvent, Failed, Finish, ParsedRequest, Request, Response, Started
from ...kit.paths import USER_CODE
from ...kit.rows import each_row
from ...kit.user_code.engine import ScriptedEngine
from ...kit.user_code.service import HI, MakeScripted, ScriptedService
from ...kit.waiting import until

TIMEOUT = 30.0
"""Seconds that a test waits for another thread before it fails."""

GUARD = """
import threading
began, go = threading.Event(), threading.Event()
calls = []
def judge(text, stage):
    calls.append((stage, text))
    if "slow" in text:
        began.set()
        assert go.wait(30)
    if "stop" in text:
        return "stop"
    if "wrong" in text:
        return 7
"""


@pytest.fixture
def guarded(scripted: MakeScripted) -> tuple[ScriptedService, Any]:
    """One whose filter waits where it is to, and that filter's module."""
    return scripted({"guard.py": GUARD}, content_filter="guard:judge"), sys.modules["guard"]


def delta(text: str, finish: Finish | None = None, **more: Any) -> Delta:
    return Delta(0, text, finish=finish, **more)


END = Finish("eos", generated_tokens=3)


def test_open_returns_while_the_filter_is_at_it(guarded: tuple[ScriptedService, Any]) -> None:
    made, guard = guarded
    slow = made.open(b'{"inputs": "slow"}')
    assert guard.began.wait(TIMEOUT)
    other = made.open()
    made.say(0, Started(1), delta("Hello", END))
    until(lambda: other.finished)
    assert other.records[0] == b'{"generated_text":"Hello"}'
    assert not slow.finished
    assert len(made.engine.generations) == 1
    guard.go.set()
    made.say(1, Started(1), delta("there", END))
    until(lambda: slow.finished)
    assert slow.records[0] == b'{"generated_text":"there"}'


def test_what_is_judged_is_counted_once(guarded: tuple[ScriptedService, Any]) -> None:
    made, _ = guarded
    exchange = made.open()
    made.say(0, Started(4), delta("Hello", END))
    until(lambda: exchange.finished)
    metrics = made.service.metrics
    assert (metrics.prompt_tokens, metrics.generated_tokens) == (4, 3)


def test_events_that_come_while_the_filter_is_at_it_are_judged_together(guarded: tuple[ScriptedService, Any]) -> None:
    made, guard = guarded
    exchange = made.open()
    made.say(0, delta("slow "))
    assert guard.began.wait(TIMEOUT)
    for word in ("and ", "steady ", "wins"):
        made.engine.say(0, delta(word))
    made.engine.say(0, delta(".", END))
    guard.go.set()
    until(lambda: exchange.finished)
    assert guard.calls == [("prompt", "Hi"), ("text", "slow "), ("text", "slow and steady wins.")]
    assert exchange.records[0] == b'{"generated_text":"slow and steady wins."}'


def test_the_death_of_the_engine_while_the_filter_is_at_it(guarded: tuple[ScriptedService, Any]) -> None:
    made, guard = guarded
    exchange = made.open()
    made.say(0, delta("slow"))
    assert guard.began.wait(TIMEOUT)
    made.engine.say(0, Failed("UnavailableError", "the engine died"))
    assert not exchange.finished
    guard.go.set()
    until(lambda: exchange.finished)
    assert exchange.failure is not None
    assert exchange.failure.message == "the engine died"


def test_flagged_text_ends_its_generation_and_what_comes_later_is_nothing(guarded: tuple[ScriptedService, Any]) -> None:
    made, guard = guarded
    exchange = made.open(b'{"inputs": "Hi", "parameters": {"details": true}}')
    made.say(0, Started(1), delta("go "))
    until(lambda: ("text", "go ") in guard.calls)
    made.engine.say(0, delta("stop"))
    until(lambda: exchange.finished)
    assert made.engine.aborted == [0]
    (record,) = exchange.records
    assert b'"generated_text":"go "' in record
    assert b'"finish_reason":"content_filter"' in record


def test_rolling_batch_does_not_wait_for_the_filter(guarded: tuple[ScriptedService, Any]) -> None:
    made, guard = guarded
    batch = RollingBatch(made.service)
    frames = batch.step([Request(b'{"inputs": "slow"}'), Request(b'{"inputs": "Hi"}')])
    assert frames == [NOTHING, NOTHING]
    made.say(0, delta("Hello", END))
    done = NOTHING
    while done is NOTHING:
        slow, done = batch.step([None, None])
        assert slow is NOTHING
    assert done.data == b'{"generated_text":"Hello"}'
    assert done.last
    guard.go.set()
    # A reset forgets the request, and its generation does not stay behind.
    made.submitted(2)
    assert batch.step([], reset=True) == []
    until(lambda: made.engine.aborted == [1])


def test_dynamic_batch_waits_for_all_of_its_batch(scripted: MakeScripted) -> None:
    made = scripted({"guard.py": GUARD}, content_filter="guard:judge", rolling_batch="disable")
    batch = PlainBatch(made.service)
    bodies = [b'{"inputs": "Hi"}', b'{"inputs": "wrong"}', b'{"inputs": "stop"}']
    answers = made.service.run_user_code(lambda: batch.answers([Request(body) for body in bodies]))

    async def run() -> list[Whole]:
        answering = asyncio.ensure_future(answers)
        await asyncio.to_thread(made.submitted, 1)
        made.engine.say(0, Started(1), delta("Hello", END))
        return await answering

    good, wrong, flagged = asyncio.run(run())
    assert b"Hello" in good.body
    assert b"content filter guard:judge returned an int" in wrong.body
    assert b"inputs: flagged by the content filter: stop" in flagged.body
    assert good.status == 200
    assert min(wrong.status, flagged.status) >= 400


def test_without_code_of_the_users_requests_are_served_as_ever(scripted: MakeScripted) -> None:
    made = scripted({})
    exchange = made.open()
    assert type(exchange) is Exchange
    made.engine.say(0, delta("Hello", END))
    assert exchange.finished


def test_own_dialects_take_only_the_finding_apart(scripted: MakeScripted) -> None:
    toy = (USER_CODE / "toy.py").read_text()
    made = scripted({"toy_threads.py": toy}, output_formatter="toy_threads:Toy")
    named = made.service.open(Request(b'{"inputs": "Hi"}', attributes={"dialect": "lmi"}))
    assert type(named) is Exchange
    found = made.open()
    assert isinstance(found, Deferred)
    made.submitted(2)
    # Found to be LMI's: the engine's thread feeds it.
    made.engine.say(1, delta("Hello", END))
    assert found.finished
    assert found.records[0] == b'{"generated_text":"Hello"}'
    own = made.open(b'{"say": "Hi"}')
    made.say(2, delta("Hello", END))
    until(lambda: own.finished)
    assert own.records[0] == b'{"said": "Hello"}'
    assert own.call.reply.headers == {"x-toy": "yes"}


SLOW = """
import time
def slow(payload):
    time.sleep(0.1)
    return payload
"""


@pytest.mark.parametrize("host", ["async", "server"])
def test_a_host_is_woken_for_what_no_engine_takes(scripted: MakeScripted, host: str) -> None:
    """The engine makes no step that would do so; the formatter is slow enough for the host to wait already."""
    made = scripted({"slowly.py": SLOW}, input_formatter="slowly:slow")
    made.engine.down = "the engine is being rebuilt"

    async def answer() -> bytes:
        if host == "async":
            courier = AsyncBatcher(made.service)
            carried = b""
            async for message in courier.messages(Request(HI), "request"):
                carried += message
                courier.sent()
            return carried
        stream = AsyncService(made.service).open(Request(HI))
        return b"".join([record async for record in stream.records()])

    assert b"the engine is being rebuilt" in asyncio.run(asyncio.wait_for(answer(), TIMEOUT))


def test_the_local_server_keeps_nothing_of_what_no_engine_takes(scripted: MakeScripted) -> None:
    made = scripted({})
    made.engine.down = "the engine is given up"

    async def run() -> None:
        service = AsyncService(made.service)
        for _ in range(3):
            stream = service.open(Request(HI))
            assert b"given up" in b"".join([record async for record in stream.records()])
        assert not service._fresh

    asyncio.run(run())


def test_neighbouring_deltas_become_one() -> None:
    events: list[tuple[int, EngineEvent]] = [
        (0, Started(1)),
        (0, delta("", reasoning="hm")),
        (0, delta("a")),
        (0, delta("b", calls=(CallDelta(0, "id", "f"),))),
        (0, delta("", calls=(CallDelta(0, arguments="{}"),))),
        (0, delta("c")),
        (1, delta("x")),
        (0, Delta(1, "y")),
        (0, Delta(1, "z", finish=END)),
        (0, Failed("GenerationError", "over")),
    ]
    assert merge_deltas(events) == [
        (0, Started(1)),
        (0, delta("ab", reasoning="hm", calls=(CallDelta(0, "id", "f"), CallDelta(0, arguments="{}")))),
        (0, delta("c")),
        (1, delta("x")),
        (0, Delta(1, "yz", finish=END)),
        (0, Failed("GenerationError", "over")),
    ]


def test_threads_are_started_as_they_are_needed_and_used_again() -> None:
    workers = Workers(3)
    seen: set[int] = set()
    for _ in range(20):
        workers.call(lambda: seen.add(threading.get_ident())).result(TIMEOUT)
    gate = threading.Barrier(4)
    busy = [workers.call(gate.wait) for _ in range(3)]
    queued = workers.call(lambda: "in its turn")
    gate.wait(TIMEOUT)
    assert queued.result(TIMEOUT) == "in its turn"
    assert sorted(future.result(TIMEOUT) for future in busy) != []
    workers.close()
    # One after another, so that hardly ever a second thread is needed.
    assert len(seen) <= 3


async def answer_of_a_loop() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_coroutines_share_a_loop() -> None:
    workers = Workers(2)
    names = {workers.call(lambda: workers.run("code", answer_of_a_loop)).result(TIMEOUT) for _ in range(3)}
    workers.close()
    assert names == {"lmi-user-loop"}


BROKEN: list[tuple[dict[str, str], dict[str, str], str]] = [
    ({"model.py": "import no_such_thing"}, {}, "model.py: ModuleNotFoundError: No module named 'no_such_thing'"),
    ({"model.py": "raise ValueError('two\\nlines')"}, {}, "model.py: ValueError: two lines"),
    ({"model.py": "def f(:"}, {}, "model.py: SyntaxError"),
    ({}, {"content_filter": "nowhere:judge"}, "option.content_filter: 'nowhere:judge': there is no module nowhere"),
    ({"one.py": ""}, {"content_filter": "one:judge"}, "option.content_filter: 'one:judge': one has no judge"),
    ({"two.py": "judge = 5"}, {"content_filter": "two:judge"}, "'two:judge' is not a function"),
    ({"three.py": "def judge(): ..."}, {"content_filter": "three:judge"}, "expected (text, stage), got ()"),
    ({"four.py": "import nowhere"}, {"output_formatter": "four:Toy"}, "ModuleNotFoundError: No module named 'nowhere'"),
    ({}, {"output_formatter": "jsonline"}, "option.output_formatter: 'jsonline': there is no module jsonline"),
    (
        {"five.py": "NAME = 'five'"},
        {"output_formatter": "five"},
        "it has no BODY_FIELD, ROUTES, matches, parse, refuse",
    ),
    (
        {"sixth.py": "class A:\n NAME, MARK, ROUTES = 'lmi', 'x', []\n matches = parse = refuse = lambda self: 0"},
        {"output_formatter": "sixth:A"},
        "ROUTES: expected a tuple of lmi.formatters.Route, got []; matches: expected matches(payload, request, ",
    ),
    ({"seven.py": "f = 5"}, {"output_formatter": "seven:f"}, "expected a function or a dialect, got an int"),
    ({"eight.py": "def f(): ..."}, {"output_formatter": "eight:f"}, "expected (response), (request_output: Request"),
    ({"nine.py": "def f(): ..."}, {"input_formatter": "nine:f"}, "expected (decoded_payload: dict, tokenizer=None"),
    ({}, {"dialect": "klingon"}, "option.dialect: expected one of"),
]


@each_row(("files", "options", "said"), BROKEN)
def test_what_cannot_be_loaded_fails_the_start(
    scripted: MakeScripted, tmp_path: Path, files: dict[str, str], options: dict[str, str], said: str
) -> None:
    for file in tmp_path.glob("*.py"):
        file.unlink()
    with pytest.raises(OptionError) as caught:
        scripted(files, **options)
    assert said in caught.value.message


def test_a_start_that_fails_in_the_users_code_ends_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine(ScriptedEngine):
        closed = False

        def close(self) -> None:
            self.closed = True

    def read(decoded_payload: dict[str, Any], tokenizer: Any = None) -> dict[str, Any]:
        return decoded_payload

    def prepare(self: InputFormatter) -> None:
        raise ValueError("none here")

    monkeypatch.setattr(InputFormatter, "prepare", prepare)
    engine = Engine()
    service = Service(make_settings(tmp_path), engine, host_formatters={"input_formatter": read})
    with pytest.raises(OptionError, match=r"^model\.py: the tokenizer could not be loaded: ValueError: none here$"):
        service.start()
    assert engine.closed


def broken() -> Prepared:
    raise TypeError


def broken_stream() -> Relayed:
    def records() -> Generator[bytes]:
        yield b"a"
        raise TypeError

    return Relayed(ParsedRequest((), RelayedReply(), stream=True), records())


def deferred(made: ScriptedService, prepare: Callable[[], Any]) -> Deferred:
    """An exchange that a thread prepares so, not begun."""
    service = made.service
    assert service.extensions is not None
    meter = service.metrics.open(Request(HI))
    exchange = Deferred(
        prepare,
        lambda error: Response(error.message.encode(), error.status, failure=error),
        made.engine,
        service.admission,
        service.extensions.workers,
        meter=meter,
        notify=lambda: None,
    )
    meter.admit()
    service.admission.admit(exchange)
    return exchange


class Counted(deque[bytes]):
    """Records that know how many of them have been looked at."""

    looked_at = 0

    def copy(self) -> Counted:
        self.looked_at += len(self)
        return self


def relayed(made: ScriptedService, record: bytes, count: int) -> Exchange:
    """One that user code streams so many records for, which wait when it has ended."""
    call = ParsedRequest((), RelayedReply(), stream=True)
    exchange = deferred(made, lambda: Relayed(call, (record for _ in range(count))))
    exchange.records = Counted()
    exchange.begin()
    until(lambda: exchange.finished)
    return exchange


def test_to_relay_many_records_that_wait_looks_at_each_a_few_times(scripted: MakeScripted) -> None:
    records = relayed(scripted({}), b"x", 5000).records
    assert len(records) == 5000
    assert isinstance(records, Counted)
    assert 0 < records.looked_at < 3 * 5000


@pytest.mark.parametrize("more", [0, -1])
def test_relayed_and_unread(scripted: MakeScripted, more: int) -> None:
    made = scripted({}, max_unsent_bytes=str(5000 + more))
    exchange = relayed(made, b"x" * 50, 101 - 16 * more)
    assert (exchange.failure is not None) == (more < 0)


@pytest.mark.parametrize(
    ("prepare", "begun"), [(broken, b""), (broken_stream, b"a")], ids=["nothing sent", "a stream that has begun"]
)
def test_whatever_fails_on_its_thread_ends_the_request(
    scripted: MakeScripted, prepare: Callable[[], Any], begun: bytes
) -> None:
    made = scripted({})
    service = made.service
    exchange = deferred(made, prepare)
    exchange.begin()
    until(lambda: exchange.finished)
    said = "the request failed: TypeError"
    assert exchange.failure is not None
    assert exchange.failure.message == said
    last = json.dumps({"error": said, "code": 424}, separators=(",", ":")) + "\n" if begun else said
    assert exchange.take_all() == begun + last.encode()
    assert service.admission.open == 0


def test_a_dialect_may_not_take_a_name_that_is_taken(scripted: MakeScripted) -> None:
    toy = (USER_CODE / "toy.py").read_text().replace('NAME = "toy"', 'NAME = "lmi"')
    with pytest.raises(OptionError, match="there is a dialect named lmi already"):
        scripted({"thief.py": toy}, output_formatter="thief:Toy")


def test_an_entry_point_registers_a_dialect(scripted: MakeScripted, tmp_path: Path) -> None:
    """One that cannot be loaded fails the start."""
    package = tmp_path / "toy-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[lmi.dialects]\ntoy = toy_installed:Toy\n")
    toy = (USER_CODE / "toy.py").read_text()
    with pytest.raises(OptionError, match=r"entry point toy = toy_installed:Toy of lmi.dialects: ModuleNotFoundError"):
        scripted()
    made = scripted({"toy_installed.py": toy}, dialect="toy")
    assert [dialect.name for dialect in made.service.dialects] == ["toy"]
    exchange = made.open({"say": "Hi"})
    made.say(0, delta("Hello", END))
    until(lambda: exchange.finished)
    assert exchange.records[0] == b'{"said": "Hello"}'
