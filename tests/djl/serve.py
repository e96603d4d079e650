"""A model directory behind the real DJL engine, as a command: `python -m tests.djl.serve MODEL_DIR MODE`.

MODE is rolling, async or dynamic. Prints the URL, and ends with its standard input: a layer for `lmi bench --host`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from ..endpoints import djl_host


def main(model_dir: str, mode: str, *properties: str) -> None:
    """`properties` are pairs NAME=VALUE over those of serving.properties."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = dict(pair.split("=", 1) for pair in properties)
        running = djl_host(Path(model_dir), Path(folder) / "log", mode=mode, properties=pairs)
        try:
            print(running.url, flush=True)
            sys.stdin.read()
        finally:
            running.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
