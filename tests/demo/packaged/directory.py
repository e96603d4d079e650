"""What every model directory has besides the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["write_json", "write_properties"]

COMMON = """\
# DJL starts Python workers, which import the handler from the installed package. The model is this directory itself.
engine=Python
option.entryPoint=lmi.handler
# One worker holds the model.
minWorkers=1
maxWorkers=1
"""


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    """As transformers writes its files."""
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write_properties(directory: Path, options: str) -> None:
    """serving.properties: what is common, then the model's own lines."""
    (directory / "serving.properties").write_text(COMMON + options, encoding="utf-8")
