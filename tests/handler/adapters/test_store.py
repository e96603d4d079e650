"""The file that keeps registrations for the next start."""

from __future__ import annotations

import fcntl
import json
import threading
from pathlib import Path

import pytest

from lmi.handler.adapters.store import Kept, Store

from ...kit.rows import each_row

A = Kept("/somewhere/a")
B = Kept("/somewhere/b", "alias of b", preload=True, pin=True)


def test_what_is_put_into_it_is_there_for_another_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In a folder that it makes."""
    path = tmp_path / "state" / "adapters.json"
    store = Store(str(path))
    assert store.read() == {}
    assert caplog.messages == []
    store.put("a", A)
    store.put("b", B)
    assert Store(str(path)).read() == {"a": A, "b": B}
    assert json.loads(path.read_text()) == {
        "a": {"src": "/somewhere/a", "alias": None, "preload": True, "pin": False},
        "b": {"src": "/somewhere/b", "alias": "alias of b", "preload": True, "pin": True},
    }
    store.put("a", None)
    store.put("of which nobody knows", None)
    assert Store(str(path)).read() == {"b": B}


def test_what_an_operator_writes_by_hand_may_be_short(tmp_path: Path) -> None:
    path = tmp_path / "adapters.json"
    path.write_text('{"a": {"src": "/somewhere/a"}}')
    assert Store(str(path)).read() == {"a": A}


def test_without_a_path_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store("")
    store.put("a", A)
    assert store.read() == {}
    assert list(tmp_path.iterdir()) == []


@each_row("text", ["", "no JSON", "[]", '{"a": {}}', '{"a": {"src": 1}}', '{"a": "/somewhere/a"}', "\x00"])
def test_one_that_cannot_be_read_is_begun_anew(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "adapters.json"
    path.write_text(text)
    store = Store(str(path))
    assert store.read() == {}
    assert f"the registry of adapters {path} cannot be read and is begun anew" in caplog.text
    store.put("a", A)
    assert Store(str(path)).read() == {"a": A}


def test_where_nothing_can_be_written_it_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.joinpath("no folder").write_text("")
    store = Store(str(tmp_path / "no folder" / "adapters.json"))
    store.put("a", A)
    store.put("b", B)
    (message,) = caplog.messages
    assert message.startswith("adapters are not kept for the next start: ")
    assert message.endswith("(option.adapters_registry)")


def test_whoever_cannot_have_its_lock_goes_on_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmi.handler.file_lock.TIMEOUT_S", 0.05)
    path = tmp_path / "adapters.json"
    store = Store(str(path))
    with path.with_name("adapters.json.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        store.put("a", A)
    (message,) = caplog.messages
    assert message.startswith("adapter a: not kept for the next start: its lock could not be had within 0.05 seconds")
    store.put("b", B)
    assert store.read() == {"b": B}


def test_workers_that_share_it_lose_nothing_of_each_other(tmp_path: Path) -> None:
    path = str(tmp_path / "adapters.json")

    def put(worker: int) -> None:
        store = Store(path)
        for number in range(20):
            store.put(f"{worker}-{number}", A)
            if number % 2:
                store.put(f"{worker}-{number}", None)

    threads = [threading.Thread(target=put, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(Store(path).read()) == {f"{worker}-{number}" for worker in range(4) for number in range(0, 20, 2)}


def descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_it_leaves_no_descriptors_and_no_other_files(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "adapters.json"))
    store.put("a", A)
    before = descriptors()
    for _ in range(20):
        store.put("a", A)
    assert descriptors() <= before
    assert {path.name for path in tmp_path.iterdir()} == {"adapters.json", "adapters.json.lock"}
