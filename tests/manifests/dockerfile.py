"""A Dockerfile's steps, done one by one in a folder that stands for the image. No Docker is needed, but root is."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from ..kit.paths import ROOT

__all__ = ["Image", "steps"]

INSIDE = """
mount -t proc proc "$0/proc" &&
mount --rbind /dev "$0/dev" && mount -t tmpfs -o size=64m shm "$0/dev/shm" &&
mount --rbind /sys "$0/sys" && exec "$@"
"""
"""What Docker mounts, by which a start may fail: /proc of the container's own processes, where vLLM looks itself up by
number (get_memory_affinity); and 64 MiB of shared memory."""
PASSED = ("PIP_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy")
"""Of this machine's environment: how an index is reached."""


def steps(text: str) -> list[tuple[str, str]]:
    """Instructions and what follows them, without comments and with continued lines joined."""
    lines = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    joined = re.sub(r"\\\n\s*", " ", lines)
    found = (line.strip().partition(" ") for line in joined.splitlines() if line.strip())
    return [(name, rest.strip()) for name, _, rest in found]


@dataclass
class Image:
    """What has been built so far."""

    root: Path
    """A folder with a system, which FROM stands for."""
    environment: dict[str, str]
    user: str = "0"
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list[str])
    command: list[str] = field(default_factory=list[str])

    def build(self, dockerfile: Path, arguments: Mapping[str, str]) -> None:
        """Does all steps; raises CalledProcessError for one that fails."""
        said: dict[str, str] = {}
        for name, rest in steps(dockerfile.read_text("utf-8")):
            match name:
                case "FROM" | "EXPOSE":
                    pass
                case "ARG":
                    key, _, default = rest.partition("=")
                    said[key] = arguments.get(key, default.strip('"'))
                case "ENV":
                    self.environment |= dict(word.split("=", 1) for word in shlex.split(rest))
                case "USER":
                    self.user = rest
                case "WORKDIR":
                    self.folder = rest
                    (self.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(*rest.split())
                case "RUN":
                    self.popen(["/bin/sh", "-c", rest], said, check=True)
                case "ENTRYPOINT":
                    self.entrypoint = json.loads(rest)
                case "CMD":
                    self.command = json.loads(rest)
                case _:
                    raise AssertionError(name)

    def _copy(self, source: str, target: str) -> None:
        assert source == ".", source
        place = self.root / target.lstrip("/")
        # A clone has what git knows.
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in listed.rstrip("\0").split("\0"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place / name, follow_symlinks=False)

    def popen(
        self, command: Sequence[str], more: Mapping[str, str], log: Path | None = None, *, check: bool = False
    ) -> subprocess.Popen[bytes]:
        """Runs a command inside, as the image's user."""
        environment = self.environment | {name: os.environ[name] for name in PASSED if name in os.environ} | dict(more)
        chroot = ["chroot", f"--userspec={self.user}:{self.user}", str(self.root)]
        inner = [*chroot, "/usr/bin/env", "-i", "-C", self.folder, *(f"{k}={v}" for k, v in environment.items())]
        unshare = ["unshare", "--mount", "--kill-child", "--fork", "--pid", "bash", "-c", INSIDE, str(self.root)]
        with log.open("wb") if log else nullcontext() as output:
            process = subprocess.Popen(
                [*unshare, *inner, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        if check and process.wait():
            raise subprocess.CalledProcessError(process.returncode, command)
        return process
