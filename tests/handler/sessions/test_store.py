"""The folder of sessions: made, found, closed, swept and counted, by several at once, and what may go wrong with it."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmi.handler.sessions import store as stores
from lmi.handler.sessions.store import Store

from ...kit.api.errors import SessionError
from ...kit.rows import each_row

LEDGER = ".ledger"


class Clock:
    """The time, as a test sets it."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


Make = Callable[..., Store]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> Make:
    """Stores of one folder, as that of another worker."""

    def made(**limits: Any) -> Store:
        options: dict[str, Any] = {"lifetime": 1200.0, "max_number": 100, "max_bytes": 10_000, "clock": clock}
        return Store(tmp_path / "sessions", **{**options, **limits})

    return made


def ids(store: Store) -> set[str]:
    return {path.name for path in store.folder.iterdir() if path.is_dir()}


def test_a_session_is_a_folder_of_ours_that_nobody_else_reads(make: Make) -> None:
    store = make()
    session = store.create()
    session.put("key", b"value")
    folder = store.folder / session.id
    assert uuid.UUID(session.id).version == 4
    assert [stat.S_IMODE(path.stat().st_mode) for path in (store.folder, folder)] == [0o700, 0o700]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert session.expires == 1_000_000.0 + 1200


def test_another_worker_sees_it_and_takes_it_over(make: Make) -> None:
    session = make().create()
    session.put("key", [1, 2])
    other = make()
    found, expired = other.find(session.id)
    assert (found.get("key"), found.expires, expired) == ([1, 2], session.expires, False)
    other.close(session.id)
    with pytest.raises(SessionError, match=f"session not found: {session.id}"):
        make().find(session.id)
    assert ids(other) == set()


WRONG = [
    "../x",
    "..",
    ".",
    "/etc/passwd",
    "x" * 300,
    "no\x00thing",
    "00000000-0000-1000-8000-000000000000",
    "00000000-0000-4000-8000-00000000000A",
    "00000000-0000-4000-8000-000000000000\n",
    "00000000-0000-4000-8000-000000000000/",
    "NEW_SESSION",
    "00000000-0000-4000-8000-000000000000",
]


@each_row("given", WRONG)
@each_row("method", ["find", "close"])
def test_what_is_no_session_is_not_found(make: Make, given: str, method: str) -> None:
    store = make()
    store.create()
    with pytest.raises(SessionError) as caught:
        getattr(store, method)(given)
    assert caught.value.message.startswith("session not found: ")
    assert len(caught.value.message) < 300


def test_an_id_that_is_none_of_ours_touches_no_file(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make()

    def opened(path: Any, *_: Any, **__: Any) -> int:
        raise AssertionError(path)

    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(SessionError):
        store.find("../x")


def test_it_expires_by_the_clock_from_its_creation(make: Make, clock: Clock) -> None:
    store = make()
    session = store.create()
    for seconds, expired in ((1199, False), (1, False), (0.5, True)):
        clock.now += seconds
        assert store.find(session.id)[1] is expired
    # Use does not prolong it, and it can be closed.
    store.close(session.id)
    assert ids(store) == set()


def test_expired_ones_are_removed_when_one_is_made(make: Make, clock: Clock) -> None:
    store = make()
    old = [store.create() for _ in range(3)]
    clock.now += 600
    young = store.create()
    clock.now += 601
    new = make().create()
    assert ids(store) == {young.id, new.id}
    with pytest.raises(SessionError, match="session not found"):
        store.find(old[0].id)


def test_one_creation_removes_no_more_than_a_part(make: Make, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MAX_REMOVED", 2)
    store = make()
    for _ in range(5):
        store.create()
    for left in (5 - 2 + 1, 5 - 4 + 2, 0 + 3):
        clock.now += 1300 if left == 4 else 1
        store.create()
        assert len(ids(store)) == left


def test_folders_that_are_not_ours_are_left_alone(make: Make, clock: Clock) -> None:
    store = make()
    store.prepare()
    # As upstream makes it, a pickle within, and what has no such name.
    theirs = store.folder / str(uuid.uuid4())
    theirs.mkdir()
    (theirs / ".expiration_ts").write_bytes(b"\x80\x04G")
    named = store.folder / "mine"
    named.mkdir()
    (named / ".session").write_text("1.0")
    broken = store.folder / str(uuid.uuid4())
    broken.mkdir()
    (broken / ".session").write_text("soon")
    linked = store.folder / str(uuid.uuid4())
    linked.symlink_to(named)
    clock.now += 5000
    made = store.create()
    assert ids(store) == {theirs.name, "mine", broken.name, linked.name, made.id}
    for path in (theirs, broken):
        with pytest.raises(SessionError):
            store.close(path.name)
    assert (theirs / ".expiration_ts").exists()


def test_of_two_that_close_it_one_has(make: Make) -> None:
    store, other = make(), make()
    session = store.create()
    found = other.find(session.id)[0]
    store.close(session.id)
    with pytest.raises(SessionError, match="session not found"):
        other.close(session.id)
    for use in (lambda: found.put("key", 1), lambda: found.get("key"), lambda: found.remove("key")):
        with pytest.raises(SessionError, match=f"session not found: {session.id}"):
            use()


def test_what_a_death_has_left_half_removed_goes_later(make: Make, clock: Clock) -> None:
    store = make()
    folder = store.folder / store.create().id
    (folder / "key.bin").write_bytes(b"x")
    (folder / ".session").rename(folder / ".closed")
    clock.now += 1201
    make().create()
    assert not folder.exists()


def test_there_are_no_more_than_may_be(make: Make, clock: Clock) -> None:
    store = make(max_number=2)
    first, _ = store.create(), store.create()
    with pytest.raises(SessionError, match=r"there are 2 sessions, expected fewer than 2 \(option.sessions_max_number"):
        make(max_number=2).create()
    store.close(first.id)
    store.create()
    clock.now += 1201
    store.create()


def test_the_bytes_of_all_together_are_limited(make: Make) -> None:
    store = make(max_bytes=1000)
    one, two = store.create(), store.create()
    one.put("a", b"x" * 600)
    with pytest.raises(SessionError, match=r"session: b: 1100 bytes with this value, .*option.sessions_max_bytes"):
        two.put("b", b"x" * 500)
    assert two.get("b") is None
    two.put("b", b"x" * 400)
    one.put("a", b"x" * 100)
    two.put("c", b"x" * 500)
    two.remove("b")
    one.put("b", b"x" * 400)
    store.close(two.id)
    one.put("c", b"x" * 500)


def test_a_count_that_is_wrong_is_put_right_before_anybody_is_refused(make: Make, clock: Clock) -> None:
    store = make(max_number=2, max_bytes=1000)
    store.create()
    (store.folder / LEDGER).write_text(f"{999:>20}{99_999:>20}")
    clock.now += 2
    session = store.create()
    (store.folder / LEDGER).write_text(f"{2:>20}{99_999:>20}")
    clock.now += 2
    session.put("a", b"x" * 900)
    (store.folder / LEDGER).write_text("nonsense")
    with pytest.raises(SessionError, match="1001 bytes"):
        session.put("b", b"x" * 101)


@pytest.mark.parametrize("call", ["rename", "mkdir", "write"])
def test_a_full_disk_is_told_and_harms_nothing(make: Make, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    store = make()
    session = store.create()
    session.put("key", "old")
    before = ids(store)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if call == "write":
        monkeypatch.setattr(os, "fdopen", full)
    else:
        monkeypatch.setattr(Path, call, full)
    with pytest.raises(SessionError, match=r"No space left on device \(option.sessions_path\)"):
        store.create()
    if call == "write":
        with pytest.raises(SessionError, match="No space left on device"):
            session.put("key", "new")
    monkeypatch.undo()
    assert ids(store) == before
    assert session.get("key") == "old"
    assert {path.name for path in (store.folder / session.id).iterdir()} == {".session", "key.json"}
    session.put("key", "new")
    store.create()


def test_a_file_system_that_is_full(make: Make) -> None:
    """/dev/full says so when it is written to."""
    store = make()
    session = store.create()

    def make_full(path: Path) -> None:
        path.symlink_to("/dev/full")
        path.write_bytes(b"x")

    with pytest.raises(SessionError, match="No space left on device"):
        session._keep("key", "key", ".bin", 1, make_full)
    assert [path.name for path in (store.folder / session.id).iterdir()] == [".session"]


@pytest.mark.parametrize("kind", ["file", "link", "writable"])
def test_a_folder_that_is_not_ours_alone_is_refused(make: Make, tmp_path: Path, kind: str) -> None:
    store = make()
    if kind == "file":
        store.folder.write_text("x")
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir()
        store.folder.symlink_to(tmp_path / "elsewhere")
    else:
        store.folder.mkdir()
        store.folder.chmod(0o777)
    planted = store.folder / "00000000-0000-4000-8000-000000000000"
    if kind != "file":
        planted.mkdir()
        (planted / ".session").write_text("2000000.0")
    for use in (
        store.create,
        store.open_ids,
        lambda: store.find(planted.name),
        lambda: store.close(planted.name),
        lambda: store.changing(planted.name).__enter__(),
    ):
        with pytest.raises(SessionError, match="expected a folder of this user's that nobody else may write to"):
            use()
    assert kind == "file" or [path.name for path in store.folder.iterdir()] == [planted.name]


@pytest.mark.parametrize("use", ["prepare", "find"])
def test_a_folder_that_others_may_read_is_made_private(make: Make, use: str) -> None:
    session = make().create()
    store = make()
    store.folder.chmod(0o755)
    store.prepare() if use == "prepare" else store.find(session.id)
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


def test_a_folder_is_looked_at_once_before_its_first_use(make: Make) -> None:
    store, other = make(), make()
    missing = "00000000-0000-4000-8000-000000000000"
    with pytest.raises(SessionError, match="session not found"):
        other.find(missing)
    session = store.create()
    assert other.find(session.id)[0].id == session.id
    store.folder.chmod(0o777)
    assert other.find(session.id)[0].id == session.id
    with pytest.raises(SessionError, match="nobody else may write to"):
        make().find(session.id)


WORKER = """
import sys
from pathlib import Path
from lmi.handler.sessions.store import Store

store = Store(Path(sys.argv[1]), lifetime=1200, max_number=3_000, max_bytes=1 << 30)
for number in range(40):
    session = store.create()
    session.put("key", b"x" * 10)
    if number % 2:
        store.close(session.id)
"""


def test_processes_share_it(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    processes = [subprocess.Popen([sys.executable, "-c", WORKER, str(folder)]) for _ in range(2)]
    for one in processes:
        assert one.wait(60) == 0
    assert len([path for path in folder.iterdir() if path.is_dir()]) == 40
    assert (folder / LEDGER).read_text().split() == ["40", "400"]
