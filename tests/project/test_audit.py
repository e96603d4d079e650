"""`.ci/audit.py`, with a stand-in for pip-audit: what it makes of advisories, and of none to be had."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..kit.paths import ROOT

AUDIT = ROOT / ".ci" / "audit.py"
SOUND = {"name": "sound", "version": "1.0", "vulns": []}
SKIPPED = {"name": "private", "skip_reason": "Dependency not found on PyPI"}
FLAWED = {
    "name": "flawed",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"], "fix_versions": ["2.1"], "description": ""}],
}


def audit(tmp_path: Path, said: str) -> tuple[int, str]:
    """Exit status and output where pip-audit says so of a lock."""
    stand_in = tmp_path / "pip_audit.py"
    stand_in.write_text(f"import sys\nassert sys.argv[-1] == 'one.txt'\nprint({said!r})\n")
    command = [sys.executable, str(AUDIT), "one.txt", "--", sys.executable, str(stand_in)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("packages", "status", "last"),
    [
        ([SOUND, SKIPPED], 0, "audit: one.txt: 1 packages looked up, 1 not known there, 0 advisories"),
        ([SOUND, FLAWED], 1, "audit: flawed 2.0: PYSEC-1, mended in 2.1"),
        ([SKIPPED], 3, "audit: nothing was audited: the advisories are out of reach from here"),
    ],
)
def test_what_is_found(packages: list[object], status: int, last: str, tmp_path: Path) -> None:
    found, output = audit(tmp_path, json.dumps({"dependencies": packages}))
    assert (found, output.splitlines()[-1]) == (status, last)


def test_a_failure_is_no_pass(tmp_path: Path) -> None:
    status, output = audit(tmp_path, "no JSON")
    assert status == 1
    assert "audit: one.txt: pip-audit failed (exit status 0)" in output
