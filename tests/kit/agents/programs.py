"""Runs of other people's programs: with a home of their own, and no network but loopback.

Those from npm are in the versions of tests/kit/npm/agents, those from PyPI in those of .requirements/agents.txt and
agents-older.txt (`make agents` installs them). Without one a test is skipped; where LMI_REQUIRE says "agents" it fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..packages import installed, missing
from ..paths import AGENT_SCRIPTS, ROOT

__all__ = ["Ran", "mcp_server", "node_modules", "python_of", "run"]

TIMEOUT_S = 240.0
NOWHERE = "http://127.0.0.1:9"
"""A proxy that is not there: a program that asks for anything beyond loopback learns so at once."""


@dataclass(frozen=True)
class Ran:
    """What a program has written, and how it ended."""

    status: int
    out: str
    errors: str

    def well(self) -> Ran:
        """Itself; the test fails where the program did."""
        assert self.status == 0, f"ended with {self.status}:\n{self.out[-3000:]}\n{self.errors[-3000:]}"
        return self


def run(
    command: Sequence[str | Path],
    home: Path,
    variables: Mapping[str, str] | None = None,
    *,
    within: Path | None = None,
    timeout: float = TIMEOUT_S,
) -> Ran:
    """Runs a program whose home is `home`, in the folder `within`, else there; its input is empty."""
    home.mkdir(parents=True, exist_ok=True)
    environment = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "HOME": str(home),
        "TMPDIR": str(home),
        "TERM": "dumb",
        **{name: NOWHERE for kind in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") for name in (kind, kind.lower())},
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
        **(variables or {}),
    }
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=within or home,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        told = [
            part.decode(errors="replace")[-3000:] if isinstance(part, bytes) else ""
            for part in (error.stdout, error.stderr)
        ]
        pytest.fail(f"{command[0]} did not end within {timeout:.0f} s:\n{told[0]}\n{told[1]}")
    return Ran(done.returncode, done.stdout, done.stderr)


def node_modules() -> Path:
    """Where the programs from npm are."""
    if shutil.which("node") is None:
        missing("node is not on PATH", "agents")
    return installed("agents", "agents")


def mcp_server(*arguments: str) -> list[str]:
    """The command of an MCP server with these of its tools (tests/agents/scripts/mcp_server.py)."""
    return [sys.executable, str(AGENT_SCRIPTS / "mcp_server.py"), *arguments]


def python_of(environment: str) -> Path:
    """The interpreter of .venv-`environment`."""
    python = ROOT / f".venv-{environment}" / "bin" / "python"
    if not python.exists():
        missing(f".venv-{environment} is missing: `make agents` builds it", "agents")
    return python
