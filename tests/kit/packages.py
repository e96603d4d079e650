"""What tests take from npm, in the versions of a package-lock.json beside its package.json (tests/kit/npm/NAME).

It is kept in .cache. Where npm is missing, or nothing can be fetched, what needs it is skipped; not where LMI_REQUIRE
names it.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from .paths import CACHE, REQUIRED

__all__ = ["installed", "locked", "missing"]

PINNED = Path(__file__).with_name("npm")
NAMES = ("package.json", "package-lock.json")
TIMEOUT_S = 300.0


def installed(name: str, tool: str) -> Path:
    """The folder of the packages of tests/kit/npm/NAME; `tool` is what LMI_REQUIRE calls them."""
    pinned = {file: (PINNED / name / file).read_bytes() for file in NAMES}
    folder = CACHE / name / hashlib.sha256(b"".join(pinned.values())).hexdigest()[:12]
    done = folder / ".installed"
    with locked(CACHE / f"{name}.lock"):
        if not done.is_file():
            _install(folder, pinned, tool)
            done.touch()
    return folder / "node_modules"


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Keeps other processes of a run out, which make the same thing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(folder: Path, pinned: dict[str, bytes], tool: str) -> None:
    """npm compares what it fetches with the lock's checksum."""
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in pinned.items():
        (folder / file).write_bytes(content)
    npm = shutil.which("npm")
    if npm is None:
        missing("npm is not on PATH", tool)
    command = [str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        missing(f"npm ci: {done.stderr.strip()[-500:]}", tool)


def missing(why: str, tool: str) -> NoReturn:
    """Skips the test; fails it where LMI_REQUIRE names the tool."""
    if tool in REQUIRED:
        pytest.fail(why)
    pytest.skip(why)
