"""The copy of sessions in S3 (option.sessions_s3url), by s5cmd, which the container has, or by boto3.

    start   S3 --fetch--> a folder beside the sessions --> those that have not expired are adopted
    each minute, and at the stop: files that are new --links--> a folder beside them --send--> S3;
            files that are there no more: removed there

Once in the life of a folder of sessions they are restored, by the first worker; from then on the folder is the truth.
One worker copies at a time, and writes down what it has copied: another one has nothing to do then.
A worker may be killed while it copies: its locks (flock) go with it, and what it leaves is removed by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...model.errors import OptionError
from ..file_lock import lock_file, try_lock_file
from .store import Store

__all__ = ["Copy", "copier"]

log = logging.getLogger(__name__)

CONTAINERS = "/opt/djl/bin/s5cmd"
"""Where the container has it."""
MAX_PATHS = 200
"""How many paths one command is given."""
TIMEOUT_S = 600.0
"""Seconds that a command of s5cmd's may take."""
RESTORED = ".restored"
"""The file that says what is in S3, by `_files`. It is empty until that has been restored, and locked while somebody
restores or copies."""
INTERVAL_S = 60.0
"""Seconds between two copies."""
COPYING = ".s3"
"""A file whose lock those share who have a folder beside the sessions."""
BESIDE = ".s3-"
"""What the names of such folders begin with."""


class Copier(Protocol):
    """Copies trees of files; raises OSError, or whatever its tool raises."""

    def fetch(self, url: str, folder: Path) -> None:
        """What is below `url`, to the folder."""
        ...

    def send(self, folder: Path, url: str) -> None:
        """What is in the folder, below `url`."""
        ...

    def remove(self, url: str, paths: Sequence[str]) -> None:
        """The files `url/path`, some of which may be missing."""
        ...


class S5cmd:
    """By the command."""

    def __init__(self, command: str) -> None:
        self._command = command

    def fetch(self, url: str, folder: Path) -> None:
        """See Copier."""
        self._run("sync", f"{url}/*", f"{folder}/")

    def send(self, folder: Path, url: str) -> None:
        """See Copier."""
        self._run("sync", f"{folder}/", f"{url}/")

    def remove(self, url: str, paths: Sequence[str]) -> None:
        """See Copier."""
        for begin in range(0, len(paths), MAX_PATHS):
            # A key may have stars in it.
            self._run("rm", "--raw", *(f"{url}/{path}" for path in paths[begin : begin + MAX_PATHS]))

    def _run(self, *arguments: str) -> None:
        command = [self._command, "--retry-count", "1", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if done.returncode and "no object found" not in done.stderr:
            raise OSError(f"s5cmd {arguments[0]} failed: {done.stderr.strip()[-500:]}")


class Boto3:
    """By the library."""

    def __init__(self) -> None:
        import boto3  # type: ignore[import-not-found, unused-ignore]

        self._s3: Any = boto3.client("s3")

    def fetch(self, url: str, folder: Path) -> None:
        """See Copier."""
        bucket, prefix = _place(url)
        for key in self._keys(bucket, prefix):
            path = folder / key[len(prefix) :]
            # A key may have any name.
            if path.resolve().is_relative_to(folder.resolve()) and not key.endswith("/"):
                path.parent.mkdir(parents=True, exist_ok=True)
                self._s3.download_file(bucket, key, str(path))

    def send(self, folder: Path, url: str) -> None:
        """See Copier."""
        bucket, prefix = _place(url)
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self._s3.upload_file(str(path), bucket, f"{prefix}{path.relative_to(folder).as_posix()}")

    def remove(self, url: str, paths: Sequence[str]) -> None:
        """See Copier."""
        bucket, prefix = _place(url)
        for path in paths:
            self._s3.delete_object(Bucket=bucket, Key=f"{prefix}{path}")

    def _keys(self, bucket: str, prefix: str) -> list[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]


def _place(url: str) -> tuple[str, str]:
    """A URL's bucket, and what the keys below it begin with."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    return bucket, f"{prefix}/" if prefix else ""


def copier() -> Copier:
    """What there is to copy with; raises OptionError where there is nothing."""
    command = CONTAINERS if os.access(CONTAINERS, os.X_OK) else shutil.which("s5cmd")
    if command:
        return S5cmd(command)
    if importlib.util.find_spec("boto3") is not None:
        return Boto3()
    expected = f"s5cmd ({CONTAINERS} or on the path) or boto3 with it, and there is neither"
    raise OptionError.of("sessions_s3url", expected=expected)


class Copy:
    """The copy of one store."""

    def __init__(self, store: Store, url: str, by: Copier) -> None:
        self._store = store
        self._url = url
        self._by = by
        self._stopped = threading.Event()

    def start(self) -> None:
        """Copies what is new each minute, on a thread, until `stop`. DJL Serving kills its workers."""
        threading.Thread(target=self._keep_saving, name="lmi-sessions-copy", daemon=True).start()

    def stop(self) -> None:
        """Copies for the last time."""
        self._stopped.set()
        self.save()

    def _keep_saving(self) -> None:
        while not self._stopped.wait(INTERVAL_S):
            self.restore()
            self.save(at_stop=False)

    def restore(self) -> None:
        """Takes over what is there, unless that has been done. Raises nothing: a failure is logged."""
        try:
            self._store.prepare()
            with _opened(self._store.folder / RESTORED) as done:
                if try_lock_file(done) and not os.fstat(done).st_size:
                    self._restore(done)
        except Exception as error:  # noqa: BLE001 - it is logged
            log.error("sessions could not be restored from %s: %s", self._url, _said(error))

    def _restore(self, done: int) -> None:
        with self._beside() as folder:
            self._by.fetch(self._url, folder)
            names = [one.name for one in folder.iterdir() if one.is_dir() and self._store.adopt(one)]
        try:
            _write(done, self._files(names))
        except OSError:
            # Another start may have more luck.
            os.ftruncate(done, 0)
            raise
        log.info("%d sessions restored from %s", len(names), self._url)

    def save(self, *, at_stop: bool = True) -> None:
        """Copies the files of open sessions there that are not there yet. Raises nothing: a failure is logged.

        At the stop all of them, for what is written to an array's memory map shows nowhere, and whoever else copies.
        """
        try:
            with _opened(self._store.folder / RESTORED) as done:
                if try_lock_file(done) or at_stop:
                    self._save(done, at_stop)
        except Exception as error:  # noqa: BLE001
            log.error("sessions could not be copied to %s: %s", self._url, _said(error))

    def _save(self, done: int, at_stop: bool) -> None:
        restored = os.fstat(done).st_size > 0
        before = _read(done)
        files = self._files(self._store.open_ids())
        new = [path for path, written in files.items() if at_stop or before.get(path) != written]
        gone = [path for path in before if path not in files]
        if not new and not gone:
            return
        if restored:
            # Who is killed meanwhile may have sent any of them: 0 has them sent again, and their names are known.
            _write(done, {**before, **dict.fromkeys(new, 0)})
        with self._beside() as folder:
            for path in new:
                _link(self._store.folder / path, folder / path)
            if new:
                self._by.send(folder, self._url)
        self._by.remove(self._url, gone)
        if restored:
            _write(done, files)
        log.info("sessions: %d files copied to %s, %d removed there", len(new), self._url, len(gone))

    def _files(self, names: Sequence[str]) -> dict[str, int]:
        """The files of sessions, `ID/NAME`, and when each was written."""
        found: dict[str, int] = {}
        for name in names:
            # It may be closed meanwhile.
            with contextlib.suppress(FileNotFoundError), os.scandir(self._store.folder / name) as entries:
                for entry in entries:
                    if not entry.name.endswith(".part"):
                        found[f"{name}/{entry.name}"] = entry.stat(follow_symlinks=False).st_mtime_ns
        return found

    @contextlib.contextmanager
    def _beside(self) -> Iterator[Path]:
        """A folder in the file system of the sessions; what is left of others goes, if nobody has one now."""
        with _opened(self._store.folder / COPYING) as lock:
            if try_lock_file(lock):
                for left in self._store.folder.glob(f"{BESIDE}*"):
                    shutil.rmtree(left, ignore_errors=True)
            lock_file(lock, fcntl.LOCK_SH)
            with tempfile.TemporaryDirectory(prefix=BESIDE, dir=self._store.folder) as folder:
                yield Path(folder)


def _said(error: Exception) -> str:
    """What the log is told, and no traceback, of which it withholds this: nothing of a request is in it."""
    return f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The descriptor of a file that is made where it is missing. To close it gives its lock back."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _link(path: Path, target: Path) -> None:
    """A session's file as it is now, whatever becomes of it."""
    target.parent.mkdir(exist_ok=True)
    # It may be closed meanwhile.
    with contextlib.suppress(FileNotFoundError):
        target.hardlink_to(path)


def _read(descriptor: int) -> dict[str, int]:
    """What `_write` has written; nothing where somebody was killed at it."""
    try:
        return dict(json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0)))
    except (ValueError, TypeError):
        return {}


def _write(descriptor: int, files: dict[str, int]) -> None:
    text = json.dumps(files).encode()
    os.pwrite(descriptor, text, 0)
    os.ftruncate(descriptor, len(text))
