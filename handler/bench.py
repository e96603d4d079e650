"""`lmi bench`: how much of the engine's speed arrives at the client.

    engine alone -> core, no host -> local server -> further hosts, each with every workload and number of connections

One run compares layers on the same model, options, prompts and machine; ratios count, not figures of other days.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from ..model.errors import OptionError
from ..model.options import load_settings
from .bench_layers import CommandLayer, CoreLayer, FloorLayer, Layer, UrlLayer
from .bench_report import medians, plot, table, write_json
from .bench_work import WORKLOADS, Figures, Workload, prompts

__all__ = ["add_arguments", "bench"]

OURS = ("engine", "core", "server")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The command line of `lmi bench`."""
    command.add_argument("model_dir", type=Path, nargs="?", help="what the engine, core and server layers serve")
    command.add_argument("--layers", default=",".join(OURS), help="of engine, core, server; default: all of them")
    command.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="a further layer: a command that starts a server, prints its http:// URL and ends with its standard input",
    )
    command.add_argument("--url", action="append", default=[], metavar="[NAME=]URL", help="a server that runs already")
    command.add_argument("--header", action="append", default=[], metavar="NAME: VALUE", help="sent to every --url")
    command.add_argument("--dialect", choices=("lmi", "openai"), help="only the workloads of one dialect")
    command.add_argument("--workload", action="append", default=[], help="only these: " + ", ".join(_names()))
    command.add_argument("--connections", default="1,16,64,256")
    command.add_argument("--tokens", type=int, default=100, help="tokens of every answer")
    command.add_argument("--rounds", type=int, default=3, help="requests of each connection")
    command.add_argument("--repeat", type=int, default=3, help="runs of everything; the table shows medians")
    command.add_argument("-o", "--output", type=Path, help="writes OUTPUT.json and OUTPUT.png")
    command.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="override an option.*")


def _names() -> list[str]:
    return [workload.name for workload in WORKLOADS]


def bench(arguments: argparse.Namespace, overrides: dict[str, str]) -> None:
    """Measures and prints; raises OptionError for arguments that make no sense."""
    connections = [int(text) for text in arguments.connections.split(",")]
    workloads = [
        workload
        for workload in WORKLOADS
        if arguments.dialect in (None, workload.dialect)
        and (not arguments.workload or workload.name in arguments.workload)
    ]
    if not workloads:
        raise OptionError(f"--workload: expected one of {', '.join(_names())}, got {arguments.workload}", "workload")
    runs: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="lmi-bench-") as folder:
        for layer in _layers(arguments, overrides, Path(folder)):
            _say(f"{layer.name}: starting")
            try:
                layer.start()
                for run in _runs(layer, workloads, connections, arguments):
                    runs.append(run)
                    _say(f"{layer.name}: {run.workload}, {run.connections} connections: {run.rate:,.0f} tokens/s")
            finally:
                layer.stop()
    shown = medians(runs)
    print(table(shown))
    if arguments.output:
        asked = {"tokens": arguments.tokens, "rounds": arguments.rounds, "repeat": arguments.repeat}
        write_json(arguments.output.with_suffix(".json"), runs, asked)
        plot(arguments.output.with_suffix(".png"), shown)
    lost = sum(run.lost for run in runs)
    if lost:
        raise OptionError(f"{lost} tokens were lost")


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


_next_prompt = count()


def _runs(
    layer: Layer, workloads: Sequence[Workload], connections: Sequence[int], arguments: argparse.Namespace
) -> Iterator[Figures]:
    tokens: int = arguments.tokens
    for workload in workloads:
        # What is compiled or allocated at first use is not measured.
        layer.run(workload, _fresh(min(64, max(connections))), min(tokens, 20), min(64, max(connections)))
    for _ in range(arguments.repeat):
        for workload in workloads:
            for number in connections:
                requests = number * arguments.rounds
                yield layer.run(workload, _fresh(max(requests, MANY)), tokens, number)


MANY = 6
"""Requests of the shortest run."""


def _fresh(number: int) -> list[str]:
    """Prompts that no earlier run of this layer has had."""
    first = next(_next_prompt) * 10_000
    return prompts(number, first % 1_000_000)


def _layers(arguments: argparse.Namespace, overrides: dict[str, str], folder: Path) -> Iterator[Layer]:
    """Each when its turn has come: two engines at once would share the machine."""
    wanted = [name for name in arguments.layers.split(",") if name]
    if unknown := set(wanted) - set(OURS):
        raise OptionError(f"--layers: expected some of {', '.join(OURS)}, got {', '.join(sorted(unknown))}", "layers")
    if wanted and arguments.model_dir is None and not arguments.url:
        raise OptionError("expected a model directory, or --url", "model_dir")
    if arguments.model_dir is not None:
        settings = load_settings(arguments.model_dir, environment=os.environ, overrides=overrides)
        if "engine" in wanted:
            yield FloorLayer(settings)
        if "core" in wanted:
            yield CoreLayer(settings)
        if "server" in wanted:
            yield CommandLayer("local server", _serve(arguments.model_dir, overrides), folder / "server.log")
    headers = dict(header.split(": ", 1) for header in arguments.header)
    for number, given in enumerate(arguments.host):
        name, _, command = given.partition("=")
        yield CommandLayer(name, command, folder / f"host-{number}.log")
    for given in arguments.url:
        name, separator, url = given.partition("=http")
        yield UrlLayer(name, "http" + url, headers) if separator else UrlLayer(given, given, headers)


def _serve(model_dir: Path, overrides: dict[str, str]) -> list[str]:
    options = [f"--set={name}={value}" for name, value in overrides.items()]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    return [sys.executable, "-m", "lmi.handler.cli", "serve", str(model_dir), "--port", port, *options]
