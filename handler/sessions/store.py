"""The folder of sessions, which is all that workers know of them: one sees what another has made, dead or alive.

    PATH/.ledger                 ledger.py
    PATH/UUID/.session           when it expires, by time.time(): with this file it is a session
    PATH/UUID/.closed            the same file of one that has been closed; it is about to be removed
    PATH/UUID/KEY.json, ...      values.py

Only folders that have such a file are ours; others are left alone. An id is checked before it becomes a path.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from ...model.errors import SessionError
from .ledger import Ledger, locked
from .session import StoredSession

__all__ = ["Store", "check_folder"]

log = logging.getLogger(__name__)

OPEN, CLOSED = ".session", ".closed"
UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
MAX_SHOWN = 256
"""Characters of an id that a message repeats: as long as SageMaker's may be."""
MAX_PAUSE = 20
"""How many times as long as the last look at all sessions the next one waits, and a second at least."""
MAX_REMOVED = 1000
"""How many sessions one look removes."""


def check_folder(folder: Path) -> None:
    """Raises what `Store.prepare` raises for a folder, and leaves nothing of it that was not there."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        Store(folder, lifetime=1, max_number=1, max_bytes=0).prepare()
    finally:
        for one in made:
            with contextlib.suppress(OSError):
                one.rmdir()


class Store:
    """The sessions of one folder. For any thread."""

    def __init__(
        self,
        folder: Path,
        *,
        lifetime: float,
        max_number: int,
        max_bytes: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`lifetime`: seconds; `max_bytes`: of all values together."""
        self.folder = folder
        self._lifetime = lifetime
        self._max_number = max_number
        self._max_bytes = max_bytes
        self._clock = clock
        self._ours = False
        """Whether the folder has been found to be ours alone to write to."""
        self._looked = -math.inf
        self._next_look = -math.inf
        self._pause = 1.0

    def prepare(self) -> None:
        """Makes the folder; raises OSError, or SessionError where it is not ours alone to write to."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir(mode=0o700)
        self._ours = False
        self._require_ours()

    def create(self, until: float = math.inf) -> StoredSession:
        """A new session, but none after `until` (time.monotonic); removes expired ones. Raises SessionError."""
        with self._no_room(), self._removing() as expired:
            self.prepare()
            with locked(self.folder, until) as ledger:
                if not ledger.known or self._due():
                    expired += self._look(ledger)
                if ledger.number >= self._max_number and self._may_look():
                    expired += self._look(ledger)
                if ledger.number >= self._max_number:
                    limit = f"fewer than {self._max_number} (option.sessions_max_number)"
                    raise SessionError(f"there are {ledger.number} sessions, expected {limit}")
                session = self._make(self.folder / str(uuid.uuid4()), self._clock() + self._lifetime)
                ledger.number += 1
                return session

    def find(self, session_id: str) -> tuple[StoredSession, bool]:
        """A session, and whether it has expired; raises SessionError for one that is not there."""
        folder = self._folder_of(session_id)
        expires = None
        if folder is not None:
            # Without a folder there are no sessions.
            with contextlib.suppress(OSError):
                self._require_ours()
                expires = _expiry(folder / OPEN)
        if folder is None or expires is None:
            raise SessionError(f"session not found: {session_id[:MAX_SHOWN]}")
        return StoredSession(self, folder, expires), self._clock() > expires

    def check(self, session_id: str) -> None:
        """See Keeper."""
        self.find(session_id)

    def close(self, session_id: str) -> None:
        """Ends a session, expired or not, and removes its values; raises SessionError for one that is not there."""
        folder = self.find(session_id)[0].folder
        with self._no_room(), self._removing() as closed, locked(self.folder) as ledger:
            self._end(folder, ledger)
            closed.append(folder)

    @contextlib.contextmanager
    def changing(self, session_id: str, size: int = 0, key: str = "") -> Iterator[Ledger]:
        """See Keeper."""
        # Nothing is made in a folder that is not ours.
        self.check(session_id)
        with self._no_room(), self._there(session_id), self._removing() as expired, locked(self.folder) as ledger:
            self.check(session_id)
            if not ledger.known or (ledger.size + size > self._max_bytes and self._may_look()):
                expired += self._look(ledger)
            if size > 0 and ledger.size + size > self._max_bytes:
                limit = f"at most {self._max_bytes} in all sessions together (option.sessions_max_bytes)"
                message = f"session: {key}: {ledger.size + size} bytes with this value, expected {limit}"
                raise SessionError(message)
            yield ledger

    def open_ids(self) -> list[str]:
        """The sessions that have not expired; raises OSError, SessionError."""
        self._require_ours()
        now = self._clock()
        found = [(folder.name, _expiry(folder / OPEN)) for folder in self._folders()]
        return [name for name, expires in found if expires is not None and expires >= now]

    def adopt(self, folder: Path) -> bool:
        """Takes over a session's folder from elsewhere in this file system, if it is one that has not expired.

        Whether it is here now: it may have been before.
        """
        expires = _expiry(folder / OPEN)
        if expires is None or expires < self._clock() or not UUID4.fullmatch(folder.name):
            return False
        place = self.folder / folder.name
        with self._no_room(), locked(self.folder) as ledger:
            if place.exists():
                return True
            folder.chmod(0o700)
            folder.rename(place)
            ledger.number += 1
            ledger.size += _size(place)
        return True

    def _require_ours(self) -> None:
        """Looks at the folder before its first use, and lets nobody else read it.

        Raises OSError, or SessionError where it is not ours alone: what others could write may be there already.
        """
        if self._ours:
            return
        found = self.folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise SessionError(f"{self.folder}: expected a folder of this user's that nobody else may write to")
        if found.st_mode & 0o077:
            self.folder.chmod(0o700)
        self._ours = True

    def _folder_of(self, session_id: str) -> Path | None:
        """A session's folder; nothing but an id of ours becomes a path."""
        return self.folder / session_id if UUID4.fullmatch(session_id) else None

    def _make(self, folder: Path, expires: float) -> StoredSession:
        folder.mkdir(mode=0o700)
        try:
            part = folder / f"{OPEN}.part"
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(repr(expires))
            part.rename(folder / OPEN)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return StoredSession(self, folder, expires)

    def _end(self, folder: Path, ledger: Ledger) -> None:
        """Makes it one that is there no more; the first one who does so has done it."""
        try:
            (folder / OPEN).rename(folder / CLOSED)
        except FileNotFoundError:
            raise SessionError(f"session not found: {folder.name}") from None
        ledger.number -= 1
        ledger.size -= _size(folder)

    def _due(self) -> bool:
        now = self._clock()
        return now >= self._next_look or now < self._looked

    def _may_look(self) -> bool:
        now = self._clock()
        return now >= self._looked + self._pause or now < self._looked

    def _look(self, ledger: Ledger) -> list[Path]:
        """Counts what is there, and ends what has expired; gives what is to be removed."""
        begun, now = time.monotonic(), self._clock()
        ledger.number = ledger.size = 0
        ledger.known = True
        ended: list[Path] = []
        earliest = now + self._lifetime
        for folder in self._folders():
            expires = _expiry(folder / OPEN)
            if expires is None:
                if (folder / CLOSED).exists():
                    ended.append(folder)
                continue
            ledger.number += 1
            ledger.size += _size(folder)
            if now > expires and len(ended) < MAX_REMOVED:
                with contextlib.suppress(SessionError):
                    self._end(folder, ledger)
                    ended.append(folder)
            else:
                earliest = min(earliest, expires)
        self._pause = max(1.0, MAX_PAUSE * (time.monotonic() - begun))
        self._looked = now
        self._next_look = max(earliest, now + self._pause)
        return ended

    def _folders(self) -> Iterator[Path]:
        """What may be sessions."""
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if UUID4.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                    yield Path(entry.path)

    @contextlib.contextmanager
    def _removing(self) -> Iterator[list[Path]]:
        """Removes the folders of what has ended within, when the lock has been given back."""
        ended: list[Path] = []
        try:
            yield ended
        finally:
            for folder in ended:
                _remove(folder)

    @contextlib.contextmanager
    def _no_room(self) -> Iterator[None]:
        """What the file system says as a SessionError."""
        try:
            yield
        except OSError as error:
            log.error("a session could not be kept: %s (option.sessions_path)", error)
            raise SessionError(f"{error.strerror or error} (option.sessions_path)") from None

    @contextlib.contextmanager
    def _there(self, session_id: str) -> Iterator[None]:
        """What is missing is so because the session has been closed meanwhile."""
        try:
            yield
        except FileNotFoundError:
            raise SessionError(f"session not found: {session_id}") from None


def _expiry(path: Path) -> float | None:
    """When a session expires; None where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        expires = float(os.read(descriptor, 64))
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
    return expires if math.isfinite(expires) else None


def _size(folder: Path) -> int:
    """Bytes of its values."""
    size = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name not in {OPEN, CLOSED}:
                with contextlib.suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_size
    return size


def _remove(folder: Path) -> None:
    """Removes one that is closed. The mark goes last: what is left over is removed by a later look."""
    with contextlib.suppress(OSError):
        with os.scandir(folder) as entries:
            others = [Path(entry.path) for entry in entries if entry.name != CLOSED]
        for path in others:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        (folder / CLOSED).unlink(missing_ok=True)
        folder.rmdir()
