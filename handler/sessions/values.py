"""A value of a session as a file: bytes as they are, arrays as .npy, all else as JSON. Nothing is pickled.

put --> KEY.bin, KEY.npy or KEY.json;   the other two are removed
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from ...model.errors import SessionError

__all__ = ["ARRAY", "SUFFIXES", "create_array", "encoded", "file_name", "map_array", "read"]

BYTES, ARRAY, JSON = SUFFIXES = (".bin", ".npy", ".json")
MAX_KEY = 200
"""Bytes of a key: file systems take names of 255."""
HEADER = 4096
"""Bytes that what stands before an array's numbers takes at most."""
EXPECTED = "bytes, a NumPy array without objects, or what JSON has"

Write = Callable[[BinaryIO], object]
"""Writes a value to an open file; raises OSError."""


def file_name(key: str) -> str:
    """The name of a key's files, without the suffix; raises SessionError."""
    # Users' code may give anything.
    given: object = key
    name = key.replace("/", "-") if isinstance(given, str) else ""
    encodable = name.isprintable() and len(name.encode(errors="replace")) <= MAX_KEY
    if not name or not encodable:
        raise SessionError(f"session: key: expected 1 to {MAX_KEY} bytes of text that prints, got {key!r:.80}")
    return name


def encoded(key: str, value: Any) -> tuple[str, int, Write]:
    """A value's suffix, the bytes that it takes at most, and what writes it; raises SessionError."""
    if isinstance(value, bytes | bytearray | memoryview):
        view = memoryview(cast("bytes", value)).cast("B")
        return BYTES, len(view), lambda file: file.write(view)
    if value is None or isinstance(value, str | int | float | list | tuple | dict):
        try:
            text = json.dumps(value).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SessionError(f"session: {key}: expected {EXPECTED}, got something else in it ({error})") from None
        return JSON, len(text), lambda file: file.write(text)
    import numpy as np

    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        kind = "an array of objects" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        raise SessionError(f"session: {key}: expected {EXPECTED}, got {kind}")
    return ARRAY, value.nbytes + HEADER, lambda file: np.save(file, value, allow_pickle=False)


def read(path: Path) -> Any:
    """The value in a file; raises OSError, ValueError."""
    if path.suffix == BYTES:
        return path.read_bytes()
    if path.suffix == JSON:
        return json.loads(path.read_bytes())
    import numpy as np

    return np.load(path, allow_pickle=False)


def map_array(path: Path) -> Any:
    """An array's file as a memory map; raises OSError, ValueError."""
    import numpy as np

    return np.load(path, mmap_mode="r+", allow_pickle=False)


def create_array(path: Path, shape: tuple[int, ...], dtype: Any) -> Any:
    """A new file of zeros as a memory map; raises OSError where there is no room for all of it."""
    import numpy as np

    format: Any = np.lib.format
    array = format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    # What had no room would end the process when it is written to. Not on macOS, which has no such call.
    if allocate := getattr(os, "posix_fallocate", None):
        descriptor = os.open(path, os.O_RDWR)
        try:
            allocate(descriptor, 0, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)
    return array
