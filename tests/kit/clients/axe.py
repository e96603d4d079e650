"""axe-core, which looks for what keeps people from using a page: from npm, in the version of npm/package-lock.json.

It is kept in .cache/axe. Where npm is missing, or nothing can be fetched, its tests are skipped; not where LMI_REQUIRE
names `axe`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ..paths import CACHE, REQUIRED
from .browser import Browser

__all__ = ["axe_faults"]

PINNED = Path(__file__).with_name("npm")
NAMES = ("package.json", "package-lock.json")
TIMEOUT_S = 120.0
GRAVE = ("serious", "critical")
RUN = """
axe.run(document, {resultTypes: ["violations"]}).then((found) => found.violations.map(
  (one) => [one.impact, one.id, one.nodes.map((node) => node.html + " " + node.failureSummary).slice(0, 3)]))
"""


def axe_faults(page: Browser) -> list[Any]:
    """What is serious or critical on the page that is open: impact, rule, elements."""
    # Evaluated from outside, where the page's policy does not apply.
    page.evaluate(f"{_source()}; 0")
    return [fault for fault in page.evaluate(RUN) if fault[0] in GRAVE]


def _source() -> str:
    pinned = {name: (PINNED / name).read_bytes() for name in NAMES}
    folder = CACHE / "axe" / hashlib.sha256(b"".join(pinned.values())).hexdigest()[:12]
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        _install(folder, pinned)
    version = json.loads(pinned["package.json"])["dependencies"]["axe-core"]
    source = script.read_text("utf-8")
    assert version in source[:200]
    return source


def _install(folder: Path, pinned: dict[str, bytes]) -> None:
    """npm compares what it fetches with the lock's checksum."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in pinned.items():
        (folder / name).write_bytes(content)
    npm = shutil.which("npm")
    if npm is None:
        _missing("npm is not on PATH")
    command = [str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        _missing(f"npm ci: {done.stderr.strip()[-500:]}")


def _missing(why: str) -> None:
    if "axe" in REQUIRED:
        pytest.fail(why)
    pytest.skip(why)
