"""the bench: what it reads in answers, how it compares, and `make bench` in small with every layer."""

from __future__ import annotations

import json
import resource
import shlex
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from lmi.model.errors import OptionError

from ...kit.djl import hosting
from ..__main__ import main
from ..cpu import OTHERS, measured
from ..figures import GENERATOR, Figures, Measured, Timed, figures
from ..load import Answered, run_load
from ..process import make_room
from ..report import idle_table, notes, table
from ..turns import Turns
from ..workloads import LMI_STREAM, TOKEN, WORKLOADS, Workload

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LINE = b'{"token":{"id":1}}\n'


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def test_times_of_records_that_arrive_torn() -> None:
    sent = HEAD + chunk(LINE) + chunk(LINE)
    bytewise = Answered(0, 0.0, [(float(at), sent[at : at + 1]) for at in range(len(sent))])
    ends = [sent.index(b'{"token":{') + 9, sent.rindex(b'{"token":{') + 9]
    assert bytewise.times(TOKEN) == [float(end) for end in ends]


def test_more_connections_than_a_process_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """The soft limit is raised as far as needed; what the hard one does not allow is told, and nothing is opened."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = [(256, 1000)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    make_room(100)
    assert limits == [(256, 1000)]
    make_room(800)
    assert limits[-1] == (900, 1000)
    with pytest.raises(OptionError, match=r"--connections: 1000 need 1100 open files, and 1000 are allowed"):
        run_load("http://127.0.0.1:1/invocations", [{}], 1000)
    assert limits[-1] == (900, 1000)
    monkeypatch.undo()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def run(layer: str, rate: int, connections: int = 1, repeat: int = 0, generator: float = 0.5) -> Figures:
    answers = [Timed(0.0, [0.5, 0.6, 0.8], rate - 1, "a"), Timed(0.0, [0.7], rate, "b")]
    made = Measured(
        layer=layer,
        workload=WORKLOADS[0],
        connections=connections,
        asked=rate,
        answers=answers,
        seconds=2.0,
        cpu={"engine core": 1.0, "load generator": generator, "others": 0.6},
    )
    return figures(made, repeat=repeat)


class _Breaking:
    """A layer of which one run breaks off, after the warm-up."""

    name = "server"

    def __init__(self) -> None:
        self.runs = 0

    def run(self, workload: Workload, prompts: Sequence[str], tokens: int, connections: int) -> Measured:
        self.runs += 1
        if self.runs == 2:
            raise ConnectionResetError("gone")
        answers = [Timed(0.0, [0.5], tokens, "") for _ in prompts]
        return Measured(
            layer=self.name, workload=workload, connections=connections, asked=tokens, answers=answers, seconds=1.0,
            cpu={GENERATOR: 0.1, OTHERS: 0.0},
        )  # fmt: skip


def test_a_run_that_broke_off_is_made_again_and_told_of() -> None:
    layer: Any = _Breaking()
    asked = Namespace(tokens=4, words=0, rounds=1, repeat=1, warm_up=8)
    turns = Turns([LMI_STREAM], [2], asked, [layer], lambda _: None)
    (found,) = turns.of([layer], [0])
    assert found.tokens == found.requests * 4
    assert turns.broken == ["server, LMI stream, log_prob, 2 connections: gone"]
    assert layer.runs == 3


def test_ratios_are_medians_of_pairs() -> None:
    # The machine is three times as fast in the second repeat: each layer is compared with its neighbour only.
    rates = {"engine alone": (100, 300, 200), "server": (90, 150, 160)}
    runs = [run(layer, rate, repeat=at) for layer, given in rates.items() for at, rate in enumerate(given)]
    lines = table(runs).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    first, second = (line.split(" | ") for line in lines[2:])
    assert first[1:5] == ["1", "engine alone", "200", "1.00 (1.00-1.00)"]
    assert second[1:5] == ["1", "server", "150", "0.80 (0.50-0.90)"]
    assert second[-3:-1] == ["engine core 3.344", "25 %"]
    assert second[-1] == "3 |"


def test_a_load_generator_that_is_too_busy_is_told_of() -> None:
    idle, busy = run("server", 100, 1, generator=1.6), run("server", 100, 64, generator=1.8)
    (warning,) = [note for note in notes([idle, busy]) if note.startswith("WARNING")]
    assert "used more than 85 % of the one core that it can use in 1 of 2 runs" in warning
    assert warning.endswith(f"measured there: server, {WORKLOADS[0].name}, 64 connections (90 % at most).")
    assert len(notes([idle])) == 1


def test_cpu_time_of_processes() -> None:
    burn = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    code = f"{burn}\nprint('done', flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        with measured([child.pid]) as used:
            assert child.stdout.readline() == b"done\n"
        with measured([child.pid]) as idle:
            time.sleep(0.2)
        child.stdin.close()
    assert set(used) == {"host", OTHERS}
    assert used["host"] >= 0.2
    assert idle.get("host", 0.0) <= 0.05
    assert idle_table({"server": {"worker": 0.004}, "other": {}}).splitlines()[2:] == [
        "| server | worker 0.40 |",
        "| other | 0.00 |",
    ]


PROGRAM = [sys.executable, "-m", "tests.bench"]


def test_what_was_started_ends_with_the_bench(tmp_path: Path) -> None:
    command = "import os, sys, time\nopen(sys.argv[1], 'w').write(str(os.getpid()))\ntime.sleep(300)"
    note = tmp_path / "pid"
    host = shlex.join([sys.executable, "-c", command, str(note)])
    with subprocess.Popen([*PROGRAM, "--layers", "", "--host", f"x={host}"], stderr=subprocess.DEVNULL) as running:
        deadline = time.monotonic() + 60
        while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        server_pid = int(note.read_text())
        running.terminate()
        assert running.wait(60) == 143
    assert not psutil.pid_exists(server_pid)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layers", "moon"], "--layers: expected some of engine, server"),
        (["--layers", ""], "expected a model directory, --host or --url"),
        (["--url", "http://127.0.0.1:1", "--workload", "none"], "--workload: expected some of LMI stream"),
        (["--url", "http://127.0.0.1:1", "--connections", "1,x"], "--connections: expected numbers from 1 on"),
        (["--url", "ftp://127.0.0.1"], "--url: expected a URL that begins with http://"),
        (["--url", "http://127.0.0.1:1"], "Connection refused"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments])
    assert ended.value.code == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("bench failed: ")]
    assert message in line


CONNECTIONS = [1, 2]
TOKENS = 16
HOST = {"java", "worker", "engine process"}
PROCESSES = {
    "engine alone": {"engine front", "engine core"},
    "local server": {"server", "engine process"},
    "rolling": HOST,
    "async": HOST,
}


@pytest.mark.engine
@pytest.mark.once
@pytest.mark.djl
@pytest.mark.timeout(900)
def test_every_layer(demo_model: Path, tmp_path: Path) -> None:
    layers = {name: roles for name, roles in PROCESSES.items() if roles is not HOST or not hosting.available()}
    numbers = ",".join(map(str, CONNECTIONS))
    small = ["--tokens", str(TOKENS), "--rounds", "1", "--repeat", "1", "--connections", numbers]
    command = [*PROGRAM, "--demo", str(demo_model), *small, "--idle", "1", "-o", str(tmp_path / "result")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=880, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    runs: list[dict[str, Any]] = result["runs"]
    assert [(one["workload"], one["connections"], one["layer"]) for one in runs] == [
        (workload.name, number, layer) for workload in WORKLOADS for number in CONNECTIONS for layer in layers
    ]
    assert (result["lost"], result["unproven"]) == (0, 0)
    streamed = {workload.name for workload in WORKLOADS if workload.stream}
    for one in runs:
        assert (one["lost"], one["tokens"]) == (0, TOKENS * one["requests"])
        assert 0 < one["ttft"][0] <= one["ttft"][1]
        if one["workload"] in streamed:
            assert 0 <= one["gap"][0] <= one["gap"][1]
            assert one["gap"][1] > 0
        else:
            assert one["gap"] == [0, 0]
        assert (GENERATOR in one["cpu"]) == (one["layer"] != "engine alone")
    for layer, processes in layers.items():
        # A short run may take less than a tick of a process's clock, which is a hundredth of a second: not all of them.
        used = {role for one in runs if one["layer"] == layer for role, seconds in one["cpu"].items() if seconds > 0}
        assert processes <= used <= processes | {"engine core", GENERATOR, "host"}, layer
    assert set(result["idle"]) == set(result["memory"]) == set(layers)
    for layer, processes in layers.items():
        assert processes <= {role for role, size in result["memory"][layer].items() if size > 10 << 20}
        assert done.stdout.count(f"| {layer} |") == len(WORKLOADS) * len(CONNECTIONS) + 2
    assert f"[{len(runs)}/{len(runs)}, 0 min left]" in done.stderr
