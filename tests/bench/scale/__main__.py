"""`python -m tests.bench.scale MODEL_DIR`, `make scale`: how a host grows with connections and with devices.

The engine is vLLM on an acted core (tests/kit/acted/), which has the pace of a machine and no model. What is under test
has the first processor, the core and this process, which is the load generator, have the second. Each answer must have
the text that it must have; the command fails where one has not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lmi.model.errors import LmiError, OptionError, one_line

from ...kit.acted.said import Said
from ...kit.hosts.host import model_directory, with_acted
from ..figures import GENERATOR, Figures, figures, quantile
from ..layers import CommandLayer
from ..run import serve_command
from ..workloads import WORKLOADS, Workload, prompts
from .machine import HOSTS, Machine, peak_of_host, place

__all__ = ["main"]

COLUMNS = (
    "tokens/s offered", "workload", "connections", "requests/s", "tokens/s", "TTFT p50 / p99, ms",
    "request p50 / p99, ms", "CPU µs a token", "host's memory, MiB", "more a connection, KiB", "generator", "others",
)  # fmt: skip
PLACED = {"server": ("server", "engine process"), "host": HOSTS}
"""What shares the first processor."""
MIB, KIB = 1 << 20, 1 << 10


def _row(
    layer: CommandLayer, machine: Machine, workload: Workload, asked: Sequence[str], connections: int, tokens: int,
    said: Said,
) -> tuple[Figures, tuple[str, ...]]:  # fmt: skip
    assert layer.process_id is not None
    before = peak_of_host(layer.process_id)
    measured = layer.run(workload, asked, tokens, connections)
    peak = peak_of_host(layer.process_id)
    texts = [said.text(prompt, tokens, chat=workload.dialect == "openai") for prompt in asked]
    run = figures(measured, texts)
    took = [answer.records[-1] - answer.sent for answer in measured.answers if answer.records]
    spent = sorted((role, used) for role, used in run.cpu.items() if role != GENERATOR)
    cpu = ", ".join(f"{role} {1e6 * used / run.tokens:.1f}" for role, used in spent)
    return run, (
        f"{machine.rate:,.0f}", workload.name, f"{connections:,}",
        f"{run.requests / run.seconds:,.0f}", f"{run.rate:,.0f}",
        _ms(run.ttft), _ms((quantile(took, 0.5), quantile(took, 0.99))), cpu, f"{peak / MIB:.0f}",
        f"{(peak - before) / KIB / connections:.0f}", f"{run.generator:.2f}", f"{run.others:.2f}",
    )  # fmt: skip


def _ms(times: tuple[float, float]) -> str:
    return " / ".join(f"{1000 * seconds:,.0f}" for seconds in times)


def _command(arguments: argparse.Namespace, model: Path) -> list[str]:
    options = {
        "max_queued_requests": str(max(arguments.connections)),
        **dict(pair.split("=", 1) for pair in arguments.set),
    }
    if arguments.host == "server":
        return serve_command(model, options)
    properties = [f"option.{name}={value}" for name, value in options.items()]
    # In rolling batch Java lets so many in; vLLM has no more than max_num_batched_tokens.
    more = ["job_queue_size=20000", "option.max_rolling_batch_size=1024", *properties]
    return [sys.executable, "-m", "tests.kit.djl.serve", str(model), arguments.host, *more]


def _scale(arguments: argparse.Namespace) -> None:
    said = Said(arguments.model_dir)
    print("| " + " | ".join(COLUMNS) + " |", "| --- " * len(COLUMNS) + "|", sep="\n", flush=True)
    wrong = 0
    for machine in map(Machine.read, arguments.machine):
        acted = [f"{name}={text}" for name, text in with_acted(machine.sequences, machine.step).items()]
        with tempfile.TemporaryDirectory(prefix="lmi-scale-") as folder:
            model = model_directory(arguments.model_dir.resolve(), Path(folder) / "model", {})
            layer = CommandLayer(arguments.host, ["env", *acted, *_command(arguments, model)], Path(folder) / "log")
            try:
                layer.start()
                wrong += _measure(layer, machine, arguments, said)
            finally:
                layer.stop()
    if wrong:
        raise OptionError(f"{wrong:,} answers were not what they must be")


def _measure(layer: CommandLayer, machine: Machine, arguments: argparse.Namespace, said: Said) -> int:
    """Prints a row for each workload and number of connections; how many answers were wrong."""
    wrong, first = 0, 0
    assert layer.process_id is not None
    for workload in WORKLOADS:
        if arguments.workload and workload.name not in arguments.workload:
            continue
        layer.run(workload, prompts(256, 900_000), arguments.tokens, 64)
        # After the first requests, with which the last threads have come.
        place(layer.process_id, PLACED[arguments.alone])
        for connections in arguments.connections:
            requests = max(arguments.rounds * connections, 20)
            asked = prompts(requests, first)
            first = (first + requests) % 800_000
            run, row = _row(layer, machine, workload, asked, connections, arguments.tokens, said)
            wrong += run.unproven + (run.lost > 0)
            print("| " + " | ".join(row) + " |", flush=True)
    return wrong


def main(given: Sequence[str] | None = None) -> None:
    """Measures and prints; an error is one line on standard error and exit status 1."""
    parser = argparse.ArgumentParser(prog="make scale", description="Connections and devices, with an acted engine.")
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("--host", choices=("server", "rolling", "async"), default="server")
    parser.add_argument(
        "--machine", action="append", default=[], metavar="SEQUENCES/MILLISECONDS",
        help="what a step serves at most, and how long it takes; again for more. Default: 1024/10.24",
    )  # fmt: skip
    parser.add_argument("--connections", default="1,10,100,1000,3000,10000")
    parser.add_argument("--workload", action="append", default=[], metavar="NAME")
    parser.add_argument("--tokens", type=int, default=100, help="of each answer")
    parser.add_argument("--rounds", type=int, default=2, help="requests of each connection")
    parser.add_argument(
        "--alone", choices=tuple(PLACED), default="server",
        help="what has the first processor: the host's process and the engine's, or the host's only",
    )  # fmt: skip
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an option.*")
    arguments = parser.parse_args(given)
    arguments.machine = arguments.machine or ["1024/10.24"]
    arguments.connections = [int(number) for number in arguments.connections.split(",")]
    try:
        _scale(arguments)
    except (LmiError, OSError) as error:
        print(f"scale failed: {one_line(str(error))}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
