"""A model directory behind the real DJL engine, as a command: `python -m tests.kit.djl.serve MODEL_DIR MODE`.

MODE is rolling, async or dynamic. Prints the URL, and ends with
its standard input: a layer for `python -m tests.bench --host`.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from ..hosts.host import djl_host


def main(model_dir: str, mode: str, *properties: str) -> None:
    """`properties` are pairs NAME=VALUE over those of serving.properties."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = dict(pair.split("=", 1) for pair in properties)
        running = djl_host(Path(model_dir), Path(folder) / "log", mode=mode, properties=pairs)
        try:
            # It ends with its standard input; the bench sends this too, and it must not break off what that began.
            signal.signal(signal.SIGTERM, lambda _signal, _frame: None)
            print(running.url, flush=True)
            sys.stdin.read()
        finally:
            running.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
