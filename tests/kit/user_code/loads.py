"""A user's engine that loads as vLLM does, by what it logs, and then says what it is asked."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from echo import Echo  # type: ignore[import-not-found]

LINES = """\
vLLM logs at {level}
(EngineCore pid=1) Loading safetensors checkpoint shards:  75% Completed | 3/4 [00:00<00:00, 9.1it/s]
"""
HERE = Path(__file__).parent


class Loads(Echo):  # type: ignore[misc]
    """Waits for the file `go` in the midst of its start, and fails where it is not empty."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        sys.stderr.write(LINES.format(level=os.environ.get("VLLM_LOGGING_LEVEL")))
        sys.stderr.flush()
        while not (go := HERE / "go").exists():
            time.sleep(0.05)
        if said := go.read_text():
            print(said, flush=True)
            raise RuntimeError("the weights do not fit")
