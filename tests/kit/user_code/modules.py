"""The modules of a user's that a process has loaded, told from those that a library loads meanwhile."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

__all__ = ["forget", "modules_in"]


def modules_in(folder: Path) -> set[str]:
    """The names of the modules whose files are under `folder`."""
    # As text: thousands of paths take longer than most tests that ask.
    inside = f"{folder}{os.sep}"
    files = {name: getattr(module, "__file__", None) for name, module in sys.modules.copy().items()}
    return {name for name, file in files.items() if file and file.startswith(inside)}


def forget(folder: Path) -> None:
    """As if nothing under `folder` had been imported."""
    for name in modules_in(folder):
        del sys.modules[name]
    # Bytecode is told from what it was made of by the second and the size alone.
    for cache in folder.rglob("__pycache__"):
        shutil.rmtree(cache)
