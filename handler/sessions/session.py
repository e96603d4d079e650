"""One session: what user code keeps in it (formatters/sessions.py). For any thread, and beside other processes."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from ...model.errors import SessionError
from .ledger import Ledger
from .values import ARRAY, HEADER, SUFFIXES, create_array, encoded, file_name, map_array, read

__all__ = ["Keeper", "StoredSession"]

NOT_GIVEN: Any = object()
"""Not None: a key that is None by mistake is not to end a session."""


class Keeper(Protocol):
    """Who keeps sessions (store.py)."""

    def check(self, session_id: str) -> None:
        """Raises SessionError where it is not there any more."""
        ...

    def close(self, session_id: str) -> None:
        """Ends a session, with its values; raises SessionError."""
        ...

    def changing(self, session_id: str, size: int = 0, key: str = "") -> AbstractContextManager[Ledger]:
        """Lets a session's values be changed, by `size` more bytes at most; raises SessionError."""
        ...


class StoredSession:
    """A Session whose values are files of one folder."""

    __slots__ = ("_store", "expires", "folder", "id")

    def __init__(self, store: Keeper, folder: Path, expires: float) -> None:
        self.id = folder.name
        self.expires = expires
        self._store = store
        self.folder = folder

    def put(self, key: str, value: Any) -> None:
        """See Session."""
        name = file_name(key)
        suffix, size, write = encoded(key, value)

        def make(path: Path) -> None:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                write(file)

        self._keep(key, name, suffix, size, make)

    def get(self, key: str, default: Any = None) -> Any:
        """See Session."""
        names = [f"{file_name(key)}{suffix}" for suffix in SUFFIXES]
        there = True
        while there:
            for name in names:
                with self._reading(key), contextlib.suppress(FileNotFoundError):
                    return read(self.folder / name)
            # Between two looks it may have become another kind, whose turn was before. A listing has either.
            there = not set(names).isdisjoint(self._listed())
        self._store.check(self.id)
        return default

    def get_as_numpy(
        self, key: str, shape: tuple[int, ...] | None = None, dtype: Any = None, create: bool = False
    ) -> Any:
        """See Session."""
        name = file_name(key)
        if create:
            return self._create(key, name, shape, dtype)
        array: Any = None
        with self._reading(key), contextlib.suppress(FileNotFoundError):
            array = map_array(self.folder / f"{name}{ARRAY}")
        if array is None:
            self._store.check(self.id)
            raise SessionError(f"session: {key}: expected an array, but there is none")
        if (shape is not None and array.shape != tuple(shape)) or (dtype is not None and array.dtype != dtype):
            expected = " of ".join(str(one) for one in (shape, dtype) if one is not None)
            raise SessionError(f"session: {key}: expected {expected}, got {array.shape} of {array.dtype}")
        return array

    @property
    def session_id(self) -> str:
        """See Session."""
        return self.id

    @property
    def expiration_ts(self) -> float:
        """See Session."""
        return self.expires

    def remove(self, key: str = NOT_GIVEN) -> bool:
        """See Session."""
        if key is NOT_GIVEN:
            self._store.close(self.id)
            return True
        name = file_name(key)
        with self._store.changing(self.id) as ledger:
            removed = [self._unlink(name, suffix) for suffix in SUFFIXES]
            ledger.size -= sum(size for size in removed if size is not None)
        return any(size is not None for size in removed)

    def _create(self, key: str, name: str, shape: tuple[int, ...] | None, dtype: Any) -> Any:
        import numpy as np

        if shape is None:
            raise SessionError(f"session: {key}: expected a shape, by which the array is made")
        try:
            kind = np.dtype(np.float32 if dtype is None else dtype)
            size = int(np.prod(shape, dtype=object)) * kind.itemsize
        except (TypeError, ValueError) as error:
            raise SessionError(f"session: {key}: expected the shape and the dtype of an array, {error}") from None
        if kind.hasobject or size < 0:
            raise SessionError(f"session: {key}: expected numbers, got {shape} of {kind}")
        made: list[Any] = []

        def make(path: Path) -> None:
            made.append(create_array(path, tuple(shape), kind))
            path.chmod(0o600)

        self._keep(key, name, ARRAY, size + HEADER, make)
        return made[0]

    def _keep(self, key: str, name: str, suffix: str, size: int, make: Callable[[Path], None]) -> None:
        """Puts the file that `make` makes in the place of what has the name. `size`: bytes that it takes at most."""
        part = self.folder / f".{uuid.uuid4()}.part"
        old = sum(self._size(name, one) or 0 for one in SUFFIXES)
        with self._store.changing(self.id, size - old, key) as ledger:
            try:
                make(part)
                change = part.stat().st_size - (self._size(name, suffix) or 0)
                part.replace(self.folder / f"{name}{suffix}")
            except BaseException:
                with contextlib.suppress(OSError):
                    part.unlink()
                raise
            ledger.size += change
            for other in SUFFIXES:
                if other != suffix:
                    ledger.size -= self._unlink(name, other) or 0

    def _listed(self) -> list[str]:
        try:
            return [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return []

    def _size(self, name: str, suffix: str) -> int | None:
        try:
            return (self.folder / f"{name}{suffix}").stat().st_size
        except FileNotFoundError:
            return None

    def _unlink(self, name: str, suffix: str) -> int | None:
        """Removes a file; its bytes, or None where there is none."""
        size = self._size(name, suffix)
        if size is not None:
            (self.folder / f"{name}{suffix}").unlink(missing_ok=True)
        return size

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, SessionError):
            raise
        except (OSError, ValueError) as error:
            raise SessionError(f"session: {key}: its value cannot be read: {error}") from None
