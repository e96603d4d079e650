"""the bench: how much of the engine's speed arrives at the client.

    engine alone -> local server -> further hosts, each with every workload and number of connections

One run compares layers on the same model, options, prompts and machine; ratios count, not figures of other days. With
--together all layers are up at once and take turns, run by run: on a machine whose speed changes from minute to minute
that compares like with like, where there is memory for all of them.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path

from lmi.model.errors import OptionError
from lmi.model.options import load_settings

from .cpu import OTHERS
from .engines import FloorLayer
from .figures import Figures
from .layers import CommandLayer, Layer, UrlLayer
from .report import Idle, Memory, idle_table, memory_table, notes, table, write_json
from .turns import Turns
from .workloads import ALL, WORKLOADS

__all__ = ["OURS", "bench", "serve_command"]

OURS = ("engine", "server")
"""Layers that need no command and no URL."""
SERVER = "local server"


def bench(arguments: argparse.Namespace, overrides: dict[str, str]) -> None:
    """Measures and prints; raises OptionError for arguments that make no sense."""
    with _terminable():
        _bench(arguments, overrides)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends what has been started, as Ctrl-C does."""

    def terminated(_signal: int, _frame: object) -> None:
        raise SystemExit(143)

    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _bench(arguments: argparse.Namespace, overrides: dict[str, str]) -> None:
    connections = _numbers(arguments.connections)
    names = [workload.name for workload in ALL]
    adapters = tuple(filter(None, arguments.adapters.split(",")))
    workloads = [
        replace(workload, adapters=adapters)
        for workload in (ALL if arguments.dialect or arguments.workload else WORKLOADS)
        if arguments.dialect in (None, workload.dialect)
        and (not arguments.workload or workload.name in arguments.workload)
    ]
    if not workloads or set(arguments.workload) - set(names):
        raise OptionError(f"--workload: expected some of {', '.join(names)}, got {arguments.workload}", "workload")
    runs: list[Figures] = []
    used: dict[str, dict[str, int]] = {}
    idle: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="lmi-bench-") as folder:
        layers = list(_layers(arguments, overrides, Path(folder)))
        turns = Turns(workloads, connections, arguments, layers, _say)
        repeats = range(arguments.repeat)
        groups = [layers] if arguments.together else [[layer] for layer in layers]
        for group, part in product(groups, [[repeat] for repeat in repeats] if arguments.restart else [repeats]):
            with ExitStack() as stack:
                for layer in group:
                    _say(f"{layer.name}: starting")
                    stack.callback(layer.stop)
                    layer.start()
                runs += turns.of(group, part)
                used |= {layer.name: layer.memory() for layer in group}
                if arguments.idle:
                    idle |= _idle(group, arguments.idle)
    _report(runs, used, idle, arguments)
    for broken in turns.broken:
        print(f"\nThis run broke off and was made again: {broken}")
    lost = sum(run.lost for run in runs)
    if lost:
        raise OptionError(f"{lost:,} tokens were lost")


def _report(runs: Sequence[Figures], used: Memory, idle: Idle, arguments: argparse.Namespace) -> None:
    print(table(runs))
    print("\n" + memory_table(used))
    if idle:
        print("\n" + idle_table(idle))
    for note in notes(runs):
        print("\n" + note)
    others = sorted(run.others for run in runs)
    middle = others[len(others) // 2]
    print(f"\nBeside the bench {middle:.2f} cores were busy in the median run, {others[-1]:.2f} at most.")
    if arguments.output:
        names = ("tokens", "words", "rounds", "repeat", "together", "restart", "warm_up")
        asked = {name: getattr(arguments, name) for name in names}
        write_json(arguments.output.with_suffix(".json"), runs, idle, {**asked, "memory": used})


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise OptionError(f"--connections: expected numbers from 1 on, with commas between, got {text}", "connections")
    return numbers


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _idle(layers: Sequence[Layer], seconds: float) -> dict[str, dict[str, float]]:
    """How many cores each process of each layer uses while nothing is asked."""
    _say(f"idle for {seconds:.0f} s")
    time.sleep(1.0)
    with ExitStack() as stack:
        used = {layer.name: stack.enter_context(layer.cpu()) for layer in layers}
        time.sleep(seconds)
    return {
        name: {role: spent / seconds for role, spent in roles.items() if role != OTHERS} for name, roles in used.items()
    }


def _layers(arguments: argparse.Namespace, overrides: dict[str, str], folder: Path) -> Iterator[Layer]:
    wanted = [name for name in arguments.layers.split(",") if name]
    if unknown := set(wanted) - set(OURS):
        raise OptionError(f"--layers: expected some of {', '.join(OURS)}, got {', '.join(sorted(unknown))}", "layers")
    if not (arguments.host or arguments.url or (wanted and arguments.model_dir)):
        raise OptionError("expected a model directory, --host or --url", "model_dir")
    if arguments.model_dir is not None:
        settings = load_settings(arguments.model_dir, environment=os.environ, overrides=overrides)
        if "engine" in wanted:
            yield FloorLayer(settings, folder / "engine.log")
        if "server" in wanted:
            yield CommandLayer(SERVER, serve_command(arguments.model_dir, overrides), folder / "server.log")
    for number, given in enumerate(arguments.host):
        name, _, command = given.partition("=")
        yield CommandLayer(name, command, folder / f"host-{number}.log")
    for given in arguments.url:
        name, separator, url = given.partition("=http")
        name, url = (name, "http" + url) if separator else (given, given)
        yield UrlLayer(name, url)


def serve_command(model_dir: Path, overrides: dict[str, str]) -> list[str]:
    """The local server on a port that is free."""
    options = [f"--set={name}={value}" for name, value in overrides.items()]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    return [sys.executable, "-m", "lmi.handler.commands.cli", "serve", str(model_dir), "--port", port, *options]
