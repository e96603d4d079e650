"""Responses in memory: bounded in number, bytes and time, the oldest go first."""

from __future__ import annotations

import threading

from lmi.handler.response_store import MemoryStore, response_store

from ..kit.api.options import make_settings


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
