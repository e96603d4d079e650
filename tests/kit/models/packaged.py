"""Models with real weights, as `make serve` makes them of packages (tests/demo/packaged)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ...demo.packaged.style import train
from ..packages import locked
from ..paths import CACHE, REQUIRED, ROOT

__all__ = ["STYLE", "packaged", "style"]

FOLDER = CACHE / "models"
TIMEOUT_S = 280.0
STYLE = "sailor"
"""The adapter's name."""


def packaged(name: str) -> Path:
    """The model directory `name` ("smollm2", "minilm"), made where it is missing or its sources changed. Where its
    package cannot be had, what needs it is skipped; not where LMI_REQUIRE names "models"."""
    with locked(CACHE / "models.lock"):
        # Of a make that runs the tests nothing is for this one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        done = subprocess.run(
            [shutil.which("make") or "make", f".cache/models/{name}/serving.properties"],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S,
            check=False,
        )  # fmt: skip
    if done.returncode:
        why = f"{done.stdout}\n{done.stderr}"[-1000:]
        if "models" in REQUIRED:
            pytest.fail(why)
        pytest.skip(why)
    return FOLDER / name


def style(smollm2: Path) -> Path:
    """The folder of the adapter that answers like a sailor; trained where it is missing or its model is newer."""
    target, made = FOLDER / "style", FOLDER / "style.part"
    with locked(CACHE / "style.lock"):
        done = target / "adapter_model.safetensors"
        if not done.exists() or done.stat().st_mtime < (smollm2 / "serving.properties").stat().st_mtime:
            for old in (target, made):
                shutil.rmtree(old, ignore_errors=True)
            train(smollm2, made)
            made.rename(target)
    return target
