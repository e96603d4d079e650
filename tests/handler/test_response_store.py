"""Responses in memory: bounded in number, bytes and time, the oldest go first."""

from __future__ import annotations

import json
import threading

import pytest

from lmi.handler.response_store import MemoryStore, response_store

from ..kit.api.handler import Exchange
from ..kit.api.options import make_settings
from ..kit.api.types import Delta, EngineEvent, Failed, Finish, Rendered, Started
from ..kit.rows import each_row
from ..kit.user_code.service import MakeScripted, ScriptedService
from ..kit.waiting import until


class Clock:
    """A time that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def made(clock: Clock | None = None, **options: int) -> MemoryStore:
    texts = {f"response_store_{name}": str(value) for name, value in options.items()}
    return MemoryStore(make_settings(response_store="true", **texts).responses, clock or Clock())


def test_there_is_one_where_the_option_says_so() -> None:
    assert response_store(make_settings().responses) is None
    assert isinstance(response_store(make_settings(response_store="true").responses), MemoryStore)


def test_what_is_put_is_there() -> None:
    store = made()
    store.put("a", b"1")
    assert (store.get("a"), store.get("b")) == (b"1", None)
    assert (store.remove("a"), store.remove("a"), store.get("a")) == (True, False, None)


def test_the_oldest_make_room_by_number() -> None:
    store = made(max_number=2)
    for name in "abc":
        store.put(name, b"1")
    assert [store.get(name) for name in "abc"] == [None, b"1", b"1"]


def test_the_oldest_make_room_by_bytes() -> None:
    store = made(max_bytes=10)
    store.put("a", b"1" * 6)
    store.put("b", b"2" * 4)
    assert store.get("a") is not None
    store.put("c", b"3" * 5)
    assert [store.get(name) for name in "abc"] == [None, b"2" * 4, b"3" * 5]
    store.remove("b")
    store.put("d", b"4" * 5)
    assert store.get("c") is not None


def test_one_that_is_too_large_costs_no_other_its_place() -> None:
    store = made(max_bytes=10)
    store.put("a", b"1")
    store.put("b", b"2" * 11)
    assert (store.get("a"), store.get("b")) == (b"1", None)


def test_they_expire() -> None:
    clock = Clock()
    store = made(clock, expiration=10)
    store.put("a", b"1")
    clock.now = 5
    store.put("b", b"2")
    clock.now = 10
    assert [store.get(name) for name in "ab"] == [None, b"2"]
    clock.now = 15
    assert not store.remove("b")


def test_threads_leave_it_in_order() -> None:
    store = made(max_number=5, max_bytes=50)

    def work(name: str) -> None:
        for number in range(300):
            store.put(f"{name}{number}", b"x" * (number % 20))
            store.get(f"{name}{number - 1}")
            store.remove(f"{name}{number - 3}")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.put("last", b"x" * 50)
    assert [name for name in ("a299", "b299", "c299", "d299", "last") if store.get(name)] == ["last"]


END = Delta(0, "Hello", finish=Finish("eos", generated_tokens=1))


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("event", [END, Failed("overloaded", "full")])
def test_a_response_is_kept_before_its_client_has_it(
    scripted: MakeScripted, monkeypatch: pytest.MonkeyPatch, filtered: bool, event: EngineEvent
) -> None:
    """By the host: the encoder knows of no store. Only one that has ended well, also behind user code."""
    kept: list[bytes] = []
    monkeypatch.setattr(MemoryStore, "put", lambda store, name, body, items=(): kept.append(body))
    options = {"content_filter": "accepts_all:judge"} if filtered else {}
    source = {"accepts_all.py": "def judge(text, kind):\n    return None\n"}
    made = scripted(source, response_store="true", **options)
    exchange = made.open({"input": "Hi"})
    made.say(0, *([Rendered("Hi")] if filtered else []), Started(1), event)
    until(lambda: exchange.finished)
    body = json.loads(exchange.take_all())
    if event is END:
        assert [json.loads(one)["response"] for one in kept] == [body]
    else:
        assert (body["error"]["message"], kept) == ("full", [])


# --- Where a request is read that names what is stored ---

SMALL, BIG = 1000, 300_000
"""Bytes that are read on the host's thread, and such that are not."""


def keep(place: ScriptedService, size: int, item: str) -> str:
    """Keeps a response that answers an input of so many bytes; its id, which is also that of `item` of its output."""
    store = place.service.responses
    assert store is not None
    said = {"type": "message", "role": "user", "id": f"in_{item}", "content": "x" * size}
    output = {"type": "message", "role": "assistant", "id": item, "content": [{"type": "output_text", "text": "Hi"}]}
    kept = {"response": {"id": f"resp_{item}", "output": [output]}, "input": [said]}
    store.put(f"resp_{item}", json.dumps(kept).encode(), [item])
    return f"resp_{item}"


def referring(*items: str) -> dict[str, object]:
    return {"input": [{"type": "item_reference", "id": item} for item in items]}


@each_row(
    ("sizes", "body", "here"),
    [
        ([SMALL], {"input": "Hi", "previous_response_id": "resp_0"}, True),
        ([BIG], {"input": "Hi", "previous_response_id": "resp_0"}, False),
        ([SMALL], referring("0"), True),
        ([BIG], referring("0"), False),
        ([BIG // 2, BIG // 2], referring("0", "1"), False),
        ([BIG // 2], {"input": "y" * (BIG // 2), "previous_response_id": "resp_0"}, False),
        ([BIG], {"input": "Hi"}, True),
    ],
)
def test_a_request_is_read_on_a_thread_where_much_must_be_read_for_it(
    scripted: MakeScripted, sizes: list[int], body: dict[str, object], here: bool
) -> None:
    place = scripted(response_store="true")
    for number, size in enumerate(sizes):
        keep(place, size, str(number))
    exchange = place.open(body, path="/v1/responses")
    assert (type(exchange) is Exchange) is here
    place.say(0, Started(1), Delta(0, "there", finish=Finish("eos", generated_tokens=1)))
    until(lambda: exchange.finished)
    assert exchange.failure is None
    assert place.service.admission.open == 0


@each_row("size", [SMALL, BIG])
@each_row("what", ["", "/input_items"])
def test_so_is_a_page_of_what_is_stored(scripted: MakeScripted, size: int, what: str) -> None:
    place = scripted(response_store="true")
    path = f"/v1/responses/{keep(place, size, '0')}{what}"
    exchange = place.open(b"", path=path, method="GET")
    assert (type(exchange) is Exchange) is (size == SMALL)
    until(lambda: exchange.finished)
    answer = json.loads(exchange.take_all())
    assert len(answer["data"][0]["content"]) == size if what else answer["id"] == "resp_0"
    assert place.service.metrics.requests == {("responses", 200, "ok"): 1}
