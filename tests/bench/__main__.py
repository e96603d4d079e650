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
from .run import OURS, bench

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


def _add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("model_dir", type=Path, nargs="?", help="what the engine and server layers serve")
    command.add_argument("--layers", default=",".join(OURS), help="of engine, server; default: both")
    command.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="a further layer: a command that starts a server, prints its http:// URL and ends with its standard input",
    )
    command.add_argument("--url", action="append", default=[], metavar="[NAME=]URL", help="a server that runs already")
    command.add_argument(
        "--dialect",
        choices=("lmi", "openai", "text", "tools", "reasoning"),
        help="only the workloads of one dialect; text: of OpenAI's completions; tools: of chats that may call one; "
        "reasoning: of chats whose prompts begin it",
    )
    command.add_argument(
        "--workload",
        action="append",
        default=[],
        metavar="NAME",
        help="only this one, by its name in the tables; again for more",
    )
    command.add_argument(
        "--adapters",
        default="",
        metavar="NAME,NAME",
        help="adapters of the model directory that requests name in turn, with --set enable_lora=true; of the demo "
        "model they are made",
    )
    command.add_argument("--connections", default="1,16,64,256")
    command.add_argument("--tokens", type=int, default=100, help="tokens of every answer")
    command.add_argument("--words", type=int, default=0, help="further words of every prompt")
    command.add_argument("--rounds", type=int, default=3, help="requests of each connection")
    command.add_argument(
        "--warm-up",
        type=int,
        default=0,
        metavar="REQUESTS",
        help="of each workload, before the first run; default: four of each connection, 256 at most. What a request "
        "costs Java falls until it has had some 10,000",
    )
    command.add_argument("--repeat", type=int, default=3, help="runs of everything; the tables show medians")
    command.add_argument("--together", action="store_true", help="start all layers at once and let them take turns")
    command.add_argument(
        "--restart", action="store_true", help="start them anew for each repeat: some starts are faster than others"
    )
    command.add_argument(
        "--idle", type=float, default=0.0, metavar="SECONDS", help="afterwards measure what idle processes cost"
    )
    command.add_argument("-o", "--output", type=Path, help="writes OUTPUT.json")
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="override an option.*")


def main(given: Sequence[str] | None = None) -> None:
    """Runs the bench; an error is one line on standard error and exit status 1."""
    configure(own_process=True)
    parser = argparse.ArgumentParser(
        prog="make bench", description="Measures throughput and latency from the engine alone to the client."
    )
    _add_arguments(parser)
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
