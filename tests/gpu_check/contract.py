"""Tests of every mode, as pytest runs them, on engines with the check's options."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET

from ..kit.djl import hosting
from ..kit.hosts.host import OPTIONS
from ..kit.paths import ROOT
from .engines import WHOLE, Engines, environment
from .run import NotPossibleError

__all__ = ["contract", "counted", "hostile"]


def contract(engines: Engines) -> str:
    """Runs tests/contract: the local server, rolling batch, async mode and dynamic batch behind the real DJL engine."""
    return _tested(engines, "contract", "tests/contract")


def hostile(engines: Engines) -> str:
    """Runs the requests that try to end the engine: the bounds of model runner V2 hold for the runner itself."""
    # The other tests of that file are about hosts and other people's clients.
    return _tested(engines, "hostile", "tests/robustness/test_hostile.py", "-k", "harm_nobody")


def _tested(engines: Engines, name: str, *selected: str) -> str:
    if missing := hosting.available():
        raise NotPossibleError(f"the modes of DJL need Java 17 and Maven: {missing}")
    results, log = engines.folder / f"{name}.xml", engines.folder / f"{name}.log"
    # One process: at most three engines at a time share the device.
    command = [sys.executable, "-m", "pytest", *selected, "-p", "no:cacheprovider", f"--junitxml={results}"]
    options = " ".join(f"{option}={value}" for option, value in WHOLE.items())
    with log.open("w") as output:
        subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False,
            env=environment(**{OPTIONS: options}), timeout=3600,
        )  # fmt: skip
    if not results.exists():
        raise RuntimeError(f"pytest ended early:\n{log.read_text(errors='replace')[-3000:]}")
    passed, others = counted(results.read_text(encoding="utf-8"))
    if others or not passed:
        raise AssertionError("\n".join([f"{passed} tests passed, {len(others)} did not", *others]))
    return f"{passed} tests passed, none was skipped; options: {options}"


def counted(xml: str) -> tuple[int, list[str]]:
    """Of pytest's results in JUnit's form: how many tests passed, and each of the others with why in a line."""
    passed, others = 0, list[str]()
    for case in ET.fromstring(xml).iter("testcase"):
        bad = [child for child in case if child.tag in ("failure", "error", "skipped")]
        passed += not bad
        for child in bad:
            why = (child.get("message") or "").partition("\n")[0]
            others.append(f"{case.get('name')}: {child.tag}: {why[:200]}")
    return passed, others
