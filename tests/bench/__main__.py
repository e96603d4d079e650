"""`python -m tests.bench [MODEL_DIR] [ARGUMENT ...]`: the bench's command line; `make bench ARGS="..."` is this with
--demo.

With --demo and neither a model directory nor a URL: everything there is to compare, on the demo model. That is the
engine alone, the local server, and the real DJL engine in rolling batch and in async mode.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lmi.handler.commands.cli import assignments
from lmi.model.errors import LmiError, one_line
from lmi.model.log_filters import configure

from ..kit.djl import hosting
from ..kit.hosts.host import model_directory
from ..kit.models.adapted import ADAPTERS, adapted_directory, write
from .arguments import add_arguments
from .run import bench

ROOM = {
    # Of sequences in the engine and of requests that Java lets in: as many as the bench has connections.
    "option.max_rolling_batch_size": "256",
    "job_queue_size": "1000",
}
MODES = ("rolling", "async")
"""DJL's, each of them a layer."""


def _everything(arguments: argparse.Namespace, folder: Path) -> None:
    """Adds to `arguments` what there is to compare on the demo model."""
    if missing := hosting.available():
        print(f"bench: without DJL's engine: {missing}", file=sys.stderr)
    demo, model = arguments.demo.resolve(), folder / "model"
    if arguments.adapters:
        arguments.model_dir = adapted_directory(demo, model, ROOM)
        write(demo, model / "adapters", arguments.adapters.split(","))
    else:
        arguments.model_dir = model_directory(demo, model, ROOM)
    for mode in () if missing else MODES:
        command = [sys.executable, "-m", "tests.kit.djl.serve", str(arguments.model_dir), mode]
        arguments.host.append(f"{mode}={shlex.join(command)}")
    arguments.together = True
    arguments.idle = arguments.idle or 20.0


def main(given: Sequence[str] | None = None) -> None:
    """Runs the bench; an error is one line on standard error and exit status 1."""
    configure(own_process=True)
    parser = argparse.ArgumentParser(
        prog="make bench", description="Measures throughput and latency from the engine alone to the client."
    )
    add_arguments(parser)
    parser.add_argument("--demo", type=Path, help="the demo model, for all layers where nothing else is named")
    arguments = parser.parse_args(given)
    if arguments.demo and not arguments.model_dir and set(filter(None, arguments.adapters.split(","))) - set(ADAPTERS):
        parser.error(f"--adapters: expected some of {','.join(ADAPTERS)} beside --demo, got {arguments.adapters}")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.url and not arguments.model_dir:
            arguments.layers = ""
        elif arguments.demo and not arguments.model_dir:
            _everything(arguments, Path(folder))
        try:
            bench(arguments, assignments(arguments.set))
        except (LmiError, OSError) as error:
            print(f"bench failed: {one_line(str(error))}", file=sys.stderr)
            raise SystemExit(1) from None


if __name__ == "__main__":
    main()
