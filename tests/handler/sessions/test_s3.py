"""Sessions are restored from S3 and copied there, by s5cmd or by boto3: both are fakes that keep it in a folder."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lmi.handler.sessions import s3
from lmi.handler.sessions.s3 import Boto3, Copy, S5cmd, copier

from ...kit.api.errors import OptionError, SessionError
from ...kit.api.handler import SessionStore as Store
from ...kit.api.handler import started_service
from ...kit.user_code.engine import ScriptedEngine
from ...kit.waiting import until

URL = "s3://bucket/some/place"

S5CMD = """#!{python}
import os, shutil, sys
from pathlib import Path

root = Path({bucket!r})

def local(path):
    return root / path.removeprefix("s3://") if path.startswith("s3://") else Path(path)

with open(root / "calls", "a") as calls:
    print(*sys.argv[1:], file=calls)
assert sys.argv[1:3] == ["--retry-count", "1"], sys.argv
action, *places = sys.argv[3:]
if (root / "broken").exists():
    sys.exit("ERROR: AccessDenied")
if action == "sync":
    source, target = places
    folder = local(source.rstrip("*"))
    if source.startswith("s3://") and not folder.exists():
        sys.exit(f'ERROR "{{action}} {{source}}": no object found')
    shutil.copytree(folder, local(target), dirs_exist_ok=True)
elif action == "rm":
    assert places.pop(0) == "--raw"
    for place in places:
        local(place).unlink(missing_ok=True)
else:
    sys.exit("ERROR: what?")
"""


class Bucket:
    """A client of boto3's for S3, as far as it is used; keys are paths in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def client(self, service: str) -> Bucket:
        assert service == "s3"
        return self

    def _path(self, bucket: str, key: str) -> Path:
        if (self.root / "broken").exists():
            raise PermissionError("AccessDenied")
        return self.root / bucket / key

    def get_paginator(self, operation: str) -> Bucket:
        assert operation == "list_objects_v2"
        return self

    def paginate(self, Bucket: str, Prefix: str) -> Iterator[dict[str, Any]]:  # noqa: N803 - boto3's names
        base = self._path(Bucket, "")
        keys = sorted(path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file())
        found = [{"Key": key} for key in keys if key.startswith(Prefix)]
        yield {"Contents": found[:2]}
        yield {"Contents": found[2:]} if found[2:] else {}

    def download_file(self, bucket: str, key: str, name: str) -> None:
        shutil.copyfile(self._path(bucket, key), name)

    def upload_file(self, name: str, bucket: str, key: str) -> None:
        path = self._path(bucket, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(name, path)

    def delete_object(self, Bucket: str, Key: str) -> None:  # noqa: N803
        self._path(Bucket, Key).unlink(missing_ok=True)


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    folder = tmp_path / "s3"
    folder.mkdir()
    return folder


@pytest.fixture
def tool(request: pytest.FixtureRequest, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """One of both is there, which a test may choose."""
    name: str = getattr(request, "param", "boto3")
    monkeypatch.setattr(s3, "CONTAINERS", str(tmp_path / "missing"))
    if name == "s5cmd":
        folder = tmp_path / "bin"
        folder.mkdir()
        command = folder / "s5cmd"
        command.write_text(S5CMD.format(python=sys.executable, bucket=str(bucket)))
        command.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    else:
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
        module: Any = ModuleType("boto3")
        module.client = Bucket(bucket).client
        module.__spec__ = object()
        monkeypatch.setitem(sys.modules, "boto3", module)
    return name


BOTH = pytest.mark.parametrize("tool", ["s5cmd", "boto3"], indirect=True)


Make = Callable[[str], Store]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """The store of an instance."""
    return lambda name: Store(tmp_path / name, lifetime=1200, max_number=10, max_bytes=10_000)


@BOTH
def test_the_tool_that_is_there(tool: str) -> None:
    assert isinstance(copier(), S5cmd if tool == "s5cmd" else Boto3)


@BOTH
def test_sessions_go_there_and_come_back(tool: str, bucket: Path, make: Make) -> None:
    first = make("first")
    Copy(first, URL, copier()).restore()
    session, closed = first.create(), first.create()
    session.put("key", [1, 2])
    first.close(closed.id)
    (first.folder / "not-ours").mkdir()
    (first.folder / "not-ours" / "secret").write_text("x")
    Copy(first, URL, copier()).save()
    kept = bucket / "bucket/some/place"
    assert {path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_file()} == {
        f"{session.id}/.session",
        f"{session.id}/key.json",
    }
    assert not list(first.folder.glob(".s3-*"))

    second = make("second")
    copy = Copy(second, URL, copier())
    copy.restore()
    found, expired = second.find(session.id)
    assert (found.get("key"), found.expires, expired) == ([1, 2], session.expires, False)
    found.put("key", 3)
    # What is restored counts.
    with pytest.raises(SessionError, match=r"option.sessions_max_bytes"):
        found.put("more", b"x" * 10_000)
    copy.save()
    third = make("third")
    Copy(third, URL, copier()).restore()
    assert third.find(session.id)[0].get("key") == 3
    # One that has been closed does not come back.
    third.close(session.id)
    Copy(third, URL, copier()).save()
    assert not [path for path in kept.rglob("*") if path.is_file()]


def test_it_is_restored_once(tool: str, make: Make) -> None:
    first = make("first")
    session = first.create()
    Copy(first, URL, copier()).save()
    second = make("second")
    Copy(second, URL, copier()).restore()
    second.close(session.id)
    # Another worker, or this one once more.
    Copy(second, URL, copier()).restore()
    with pytest.raises(SessionError):
        second.find(session.id)


KILLED = """
import os, sys
from pathlib import Path
from lmi.handler.sessions.s3 import Copy
from lmi.handler.sessions.store import Store

class Fetches:
    def fetch(self, url, folder):
        (folder / "part").write_text("x")
        os.kill(os.getpid(), 9)

Copy(Store(Path(sys.argv[1]), lifetime=1200, max_number=10, max_bytes=10_000), "s3://bucket", Fetches()).restore()
"""


def test_a_restoring_that_was_killed_is_done_again(tool: str, bucket: Path, make: Make) -> None:
    first = make("first")
    closed, kept = first.create(), first.create()
    Copy(first, URL, copier()).save()
    second = make("second")
    assert subprocess.run([sys.executable, "-c", KILLED, str(second.folder)], check=False).returncode == -9
    assert list(second.folder.glob(".s3-*/part"))
    # One was there when it was killed.
    shutil.copytree(first.folder / closed.id, second.folder / closed.id)
    Copy(second, URL, copier()).restore()
    assert set(second.open_ids()) == {closed.id, kept.id}
    assert not list(second.folder.glob(".s3-*"))
    second.close(closed.id)
    Copy(second, URL, copier()).restore()
    Copy(second, URL, copier()).save()
    assert set(second.open_ids()) == {kept.id}
    assert [path.parent.name for path in bucket.rglob(".session")] == [kept.id]


class Waits:
    """A copier that stands still within `fetch` and `send`."""

    def __init__(self) -> None:
        self.calls = 0
        self.inside, self.go = threading.Event(), threading.Event()

    def fetch(self, url: str, folder: Path) -> None:
        self._wait(folder)

    def send(self, folder: Path, url: str) -> None:
        self._wait(folder)

    def remove(self, url: str, paths: Sequence[str]) -> None:
        pass

    def _wait(self, folder: Path) -> None:
        self.calls += 1
        self.inside.set()
        assert self.go.wait(30)
        # Nobody has taken it away.
        assert folder.is_dir()


def test_one_restores_at_a_time(make: Make) -> None:
    by = Waits()
    with ThreadPoolExecutor() as pool:
        restoring = pool.submit(Copy(make("first"), URL, by).restore)
        assert by.inside.wait(30)
        Copy(make("first"), URL, by).restore()
        assert by.calls == 1
        by.go.set()
        restoring.result(30)
    Copy(make("first"), URL, by).restore()
    assert by.calls == 1


def test_what_another_one_copies_is_left_alone(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    store, by, quick = make("first"), Waits(), Waits()
    store.create()
    quick.go.set()
    with ThreadPoolExecutor() as pool:
        saving = pool.submit(Copy(store, URL, by).save)
        assert by.inside.wait(30)
        Copy(store, URL, quick).restore()
        Copy(store, URL, quick).save()
        by.go.set()
        saving.result(30)
    # It does not restore meanwhile, and copies at its stop all the same.
    assert (by.calls, quick.calls) == (1, 1)
    assert "could not" not in caplog.text
    assert not list(store.folder.glob(".s3-*"))


class Counts:
    """A copier that says what it is to do."""

    def __init__(self) -> None:
        self.sent: list[set[str]] = []
        self.removed: list[str] = []

    def fetch(self, url: str, folder: Path) -> None:
        pass

    def send(self, folder: Path, url: str) -> None:
        self.sent.append({path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()})

    def remove(self, url: str, paths: Sequence[str]) -> None:
        self.removed += paths


def test_what_is_new_is_copied_once_and_what_is_gone_removed(make: Make) -> None:
    store, by = make("first"), Counts()
    copies = [Copy(store, URL, by) for _ in range(2)]
    copies[0].restore()

    def saved() -> set[str]:
        by.sent.clear()
        for copy in copies:
            copy.save(at_stop=False)
        return set().union(*by.sent)

    assert saved() == set()
    session = store.create()
    session.put("key", 1)
    assert saved() == {f"{session.id}/.session", f"{session.id}/key.json"}
    assert len(by.sent) == 1
    assert saved() == set()
    session.put("key", b"other")
    assert saved() == {f"{session.id}/key.bin"}
    assert by.removed == [f"{session.id}/key.json"]
    store.close(session.id)
    assert saved() == set()
    assert set(by.removed[1:]) == {f"{session.id}/.session", f"{session.id}/key.bin"}


def test_it_is_copied_while_it_runs(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "INTERVAL_S", 0.01)
    store, by = make("first"), Counts()
    copy = Copy(store, URL, by)
    copy.restore()
    copy.start()
    session = store.create()
    until(lambda: by.sent)
    assert by.sent[0] == {f"{session.id}/.session"}
    copy.stop()


def test_the_copy_at_the_stop_does_not_wait_for_ever(
    make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lmi.handler.file_lock.TIMEOUT_S", 0.05)
    store, by = make("first"), Counts()
    store.create()
    copy = Copy(store, URL, by)
    with (store.folder / ".s3").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        copy.stop()
    assert "its lock could not be had within 0.05 seconds" in caplog.text
    assert by.sent == []
    copy.stop()
    assert len(by.sent) == 1


def test_what_has_expired_or_is_none_is_not_restored(tool: str, bucket: Path, make: Make) -> None:
    first = make("first")
    session = first.create()
    Copy(first, URL, copier()).save()
    kept = bucket / "bucket/some/place"
    (kept / session.id / ".session").write_text(str(time.time() - 1))
    (kept / "x").mkdir()
    (kept / "x" / ".session").write_text(str(time.time() + 100))
    (kept / "file").write_text("x")
    second = make("second")
    Copy(second, URL, copier()).restore()
    assert not [path for path in second.folder.iterdir() if path.is_dir()]


@BOTH
def test_a_failure_is_logged_and_nothing_else(
    tool: str, bucket: Path, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    first = make("first")
    session = first.create()
    Copy(first, URL, copier()).save()
    second = make("second")
    (bucket / "broken").touch()
    copy = Copy(second, URL, copier())
    with caplog.at_level(logging.INFO):
        copy.restore()
        Copy(first, URL, copier()).save()
    assert f"sessions could not be restored from {URL}" in caplog.text
    assert f"sessions could not be copied to {URL}" in caplog.text
    assert "AccessDenied" in caplog.text
    (bucket / "broken").unlink()
    # A failure is no restoring: the next start does it.
    copy.restore()
    assert second.find(session.id)[0].expires == session.expires


def test_a_service_restores_at_its_start_and_copies_at_its_end(tool: str, tmp_path: Path) -> None:
    def service(name: str) -> Any:
        return started_service(ScriptedEngine(), tmp_path, sessions_path=name, sessions_s3url=URL)

    first = service("first")
    session = first.sessions._store.create()
    first.close()
    second = service("second")
    assert second.sessions._store.find(session.id)
    second.close()


def test_without_a_tool_the_start_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "CONTAINERS", str(tmp_path / "missing"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(OptionError, match=r"option.sessions_s3url: expected s5cmd .* or boto3 with it, .* neither"):
        started_service(ScriptedEngine(), tmp_path, sessions_path="sessions", sessions_s3url=URL)


def test_without_sessions_nothing_is_restored(tmp_path: Path) -> None:
    options = {"enable_stateful_sessions": "false", "sessions_path": "sessions", "sessions_s3url": URL}
    started_service(ScriptedEngine(), tmp_path, **options).close()
    assert not (tmp_path / "sessions").exists()


def test_a_key_that_leads_elsewhere_is_not_fetched(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = ModuleType("boto3")
    there = Bucket(bucket)
    monkeypatch.setattr(there, "paginate", lambda **_: [{"Contents": [{"Key": "some/place/../../x"}]}])
    module.client = there.client
    monkeypatch.setitem(sys.modules, "boto3", module)
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    Boto3().fetch(URL, folder)
    assert not list(tmp_path.rglob("x"))
