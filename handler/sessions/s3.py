"""The copy of sessions in S3 (option.sessions_s3url), by s5cmd, which the container has, or by boto3.

    start   S3 --fetch--> a folder beside the sessions --> those that have not expired are adopted
    stop    open sessions --links--> a folder beside them --send--> S3;   what was restored and is closed: removed there

Once in the life of a folder of sessions they are restored, by the first worker; from then on the folder is the truth.
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...model.errors import OptionError
from .store import Store

__all__ = ["Copy", "copier"]

log = logging.getLogger(__name__)

CONTAINERS = "/opt/djl/bin/s5cmd"
"""Where the container has it."""
TIMEOUT_S = 600.0
"""Seconds that a command of s5cmd's may take."""
RESTORED = ".restored"
"""The file with the ids of what was restored: it has been done. It is empty, and locked, while somebody is at it."""
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

    def remove(self, url: str, names: Sequence[str]) -> None:
        """What is below `url/name` of each name."""
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

    def remove(self, url: str, names: Sequence[str]) -> None:
        """See Copier."""
        for name in names:
            self._run("rm", f"{url}/{name}/*")

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

    def remove(self, url: str, names: Sequence[str]) -> None:
        """See Copier."""
        bucket, prefix = _place(url)
        for name in names:
            for key in self._keys(bucket, f"{prefix}{name}/"):
                self._s3.delete_object(Bucket=bucket, Key=key)

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
    expected = f"expected s5cmd ({CONTAINERS} or on the path) or boto3 with it, and there is neither"
    raise OptionError(f"option.sessions_s3url: {expected}", "sessions_s3url")


class Copy:
    """The copy of one store."""

    def __init__(self, store: Store, url: str, by: Copier) -> None:
        self._store = store
        self._url = url
        self._by = by

    def restore(self) -> None:
        """Takes over what is there, unless that has been done. Raises nothing: a failure is logged."""
        try:
            self._store.prepare()
            with _opened(self._store.folder / RESTORED) as done:
                if _locked(done, fcntl.LOCK_EX | fcntl.LOCK_NB) and not os.fstat(done).st_size:
                    self._restore(done)
        except Exception as error:  # noqa: BLE001 - it is logged
            self._tell("restored from", error)

    def _restore(self, done: int) -> None:
        with self._beside() as folder:
            self._by.fetch(self._url, folder)
            names = [one.name for one in folder.iterdir() if one.is_dir() and self._store.adopt(one)]
        try:
            os.write(done, json.dumps(names).encode())
        except OSError:
            # Another start may have more luck.
            os.ftruncate(done, 0)
            raise
        log.info("%d sessions restored from %s", len(names), self._url)

    def save(self) -> None:
        """Copies the open sessions there. Raises nothing: a failure is logged."""
        try:
            ids = self._store.open_ids()
            with self._beside() as folder:
                for name in ids:
                    _link(self._store.folder / name, folder / name)
                if ids:
                    self._by.send(folder, self._url)
            restored: list[str] = []
            with contextlib.suppress(OSError, ValueError):
                restored = json.loads((self._store.folder / RESTORED).read_bytes())
            self._by.remove(self._url, [name for name in restored if name not in ids])
            log.info("%d sessions copied to %s", len(ids), self._url)
        except Exception as error:  # noqa: BLE001
            self._tell("copied to", error)

    def _tell(self, what: str, error: Exception) -> None:
        # Not as a traceback, of which the log withholds what it is about: nothing of a request is in it.
        log.error("sessions could not be %s %s: %s: %s", what, self._url, type(error).__name__, error)

    @contextlib.contextmanager
    def _beside(self) -> Iterator[Path]:
        """A folder in the file system of the sessions; what is left of others goes, if nobody has one now."""
        with _opened(self._store.folder / COPYING) as lock:
            if _locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB):
                for left in self._store.folder.glob(f"{BESIDE}*"):
                    shutil.rmtree(left, ignore_errors=True)
            _locked(lock, fcntl.LOCK_SH)
            with tempfile.TemporaryDirectory(prefix=BESIDE, dir=self._store.folder) as folder:
                yield Path(folder)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The descriptor of a file that is made where it is missing. To close it gives its lock back."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _locked(descriptor: int, how: int) -> bool:
    """Whether the lock is had; without LOCK_NB waits for it."""
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    return True


def _link(session: Path, target: Path) -> None:
    """The files of a session as they are now, whatever becomes of them."""
    target.mkdir()
    for path in session.iterdir():
        # It may be closed meanwhile.
        with contextlib.suppress(FileNotFoundError):
            (target / path.name).hardlink_to(path)
