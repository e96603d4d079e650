"""Models with real weights, as `make serve` makes them of packages (tests/demo/packaged)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from ..packages import locked, missing
from ..paths import CACHE, ROOT

__all__ = ["STYLE", "packaged"]

FOLDER = CACHE / "models"
TIMEOUT_S = 280.0
MADE = {"style": "adapter_config.json"}
"""The file whose time make goes by."""
STYLE = "sailor"
"""The name by which tests ask for the adapter."""


def packaged(name: str) -> Path:
    """The directory of "smollm2", "minilm", "whisper-tiny.en" or the adapter "style", made where it is missing or its
    sources changed.

    Where its package cannot be had, what needs it is skipped; not where LMI_REQUIRE names "models".
    """
    with locked(CACHE / "models.lock"):
        # Of a make that runs the tests nothing is for this one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        done = subprocess.run(
            [shutil.which("make") or "make", f".cache/models/{name}/{MADE.get(name, 'serving.properties')}"],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S,
            check=False,
        )  # fmt: skip
    if done.returncode:
        why = f"{done.stdout}\n{done.stderr}"[-1000:]
        missing(why, "models")
    return FOLDER / name
