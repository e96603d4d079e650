"""A model directory behind the real DJL engine, as a command: `python -m tests.kit.djl.serve MODEL_DIR MODE`.

MODE is rolling, async or dynamic. Prints how the start went, as the worker's log tells it, and the URL, and ends with
its standard input: a layer for `python -m tests.bench --host`.
"""

from __future__ import annotations

import re
import signal
import sys
import tempfile
from pathlib import Path

from ..hosts import djl_host

START = re.compile(r".*(?:ready after|the engine's process: |Loading weights took|init engine \().*")
"""Lines that `python -m tests.bench --startup` reads."""


def main(model_dir: str, mode: str, *properties: str) -> None:
    """`properties` are pairs NAME=VALUE over those of serving.properties."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = dict(pair.split("=", 1) for pair in properties)
        running = djl_host(Path(model_dir), Path(folder) / "log", mode=mode, properties=pairs)
        try:
            # It ends with its standard input; the bench sends this too, and it must not break off what that began.
            signal.signal(signal.SIGTERM, lambda _signal, _frame: None)
            print(*START.findall(running.log_text()), sep="\n")
            print(running.url, flush=True)
            sys.stdin.read()
        finally:
            running.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
