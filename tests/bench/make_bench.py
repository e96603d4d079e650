"""`lmi bench` with everything there is to compare: `python -m tests.bench.make_bench DEMO_MODEL [ARGUMENT ...]`.

The engine alone, the core, the local server, and the real DJL engine in rolling batch and in async mode, each with one
record a frame and with merged ones; all on one model directory. The arguments are further ones of `lmi bench`.
`make bench` is this.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path

from lmi.handler.commands import cli

from ..kit.djl import hosting
from ..kit.hosts import model_directory

ROOM = {
    # Of sequences in the engine and of requests that Java lets in: as many as the bench has connections.
    "option.max_rolling_batch_size": "256",
    "job_queue_size": "1000",
}
MERGED = "option.merge_records=true"
HOSTS = {
    "rolling": ("rolling",),
    "rolling merged": ("rolling", MERGED),
    "async": ("async",),
    "async merged": ("async", MERGED),
}


def main(demo: str, *arguments: str) -> None:
    """Runs the bench; its results are where `arguments` say."""
    hosts = HOSTS
    if missing := hosting.available():
        print(f"bench: without DJL's engine: {missing}", file=sys.stderr)
        hosts = {}
    with tempfile.TemporaryDirectory() as folder:
        model_dir = str(model_directory(Path(demo).resolve(), Path(folder) / "model", ROOM))
        commands = {
            name: shlex.join([sys.executable, "-m", "tests.kit.djl.serve", model_dir, *how])
            for name, how in hosts.items()
        }
        given = [f"--host={name}={command}" for name, command in commands.items()]
        cli.main(["bench", model_dir, *given, "--together", "--idle", "20", *arguments])


if __name__ == "__main__":
    main(*sys.argv[1:])
