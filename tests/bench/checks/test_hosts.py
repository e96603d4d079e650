"""`make bench` in small: every layer, the real DJL engine in both modes with them, and what it writes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ...kit.djl import hosting
from ...kit.hosts.host import model_directory
from ..__main__ import HOSTS
from ..work import GENERATOR, WORKLOADS

pytestmark = pytest.mark.once

CONNECTIONS = [1, 2]
TOKENS = 16
HOST = {"java", "worker"}
PROCESSES = {
    "engine alone": {"engine front", "engine core"},
    "core, no host": {"host", "engine process"},
    "local server": {"server", "engine process"},
    **{name: HOST | {"engine front" if "nothing" in name else "engine process"} for name in HOSTS},
}
SMALL = ["--tokens", str(TOKENS), "--rounds", "1", "--repeat", "1", "--connections", ",".join(map(str, CONNECTIONS))]


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=880, check=False)


@pytest.mark.engine
@pytest.mark.djl
@pytest.mark.timeout(900)
def test_every_layer(demo_model: Path, tmp_path: Path) -> None:
    if missing := hosting.available():
        pytest.skip(missing)
    output = tmp_path / "result"
    done = run("tests.bench", "--demo", str(demo_model), *SMALL, "--idle", "1", "-o", str(output))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    runs: list[dict[str, Any]] = result["runs"]
    assert [(one["workload"], one["connections"], one["layer"]) for one in runs] == [
        (workload.name, number, layer) for workload in WORKLOADS for number in CONNECTIONS for layer in PROCESSES
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
        assert (GENERATOR in one["cpu"]) == (one["layer"] not in {"engine alone", "core, no host"})
    for layer, processes in PROCESSES.items():
        # A short run may take less than a tick of a process's clock, which is a hundredth of a second: not all of them.
        used = {role for one in runs if one["layer"] == layer for role, seconds in one["cpu"].items() if seconds > 0}
        assert processes <= used <= processes | {"engine core", GENERATOR, "host"}, layer
    assert set(result["idle"]) == set(PROCESSES)
    compared = {(one["layer"], one["workload"], one["connections"]): one for one in result["ratios"]}
    assert len(compared) == len(runs)
    rates = {(one["layer"], one["workload"], one["connections"]): one["tokens"] / one["seconds"] for one in runs}
    for (layer, workload, number), one in compared.items():
        floor = rates["engine alone", workload, number]
        assert one["ratio"] == pytest.approx(rates[layer, workload, number] / floor)
        assert one["to"] == "engine alone"
    assert (tmp_path / "result.png").read_bytes().startswith(b"\x89PNG")
    for layer in [*PROCESSES][1:]:
        assert done.stdout.count(f"| {layer} |") >= len(WORKLOADS) * len(CONNECTIONS)
    assert f"[{len(runs)}/{len(runs)}, 0 min left]" in done.stderr


@pytest.mark.engine
def test_a_local_server_of_which_one_dialect_is_asked(demo_model: Path, tmp_path: Path) -> None:
    """The layer `server`, and with it --dialect; without the engine alone, whole and streamed texts are compared."""
    directory = model_directory(demo_model, tmp_path / "model", {})
    output = tmp_path / "result"
    arguments = [str(directory), "--layers", "server", "--dialect", "openai", *SMALL, "-o", str(output)]
    done = run("tests.bench", *arguments)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert [(one["layer"], one["workload"], one["connections"]) for one in result["runs"]] == [
        ("local server", workload, number) for workload in ("chat stream", "chat whole") for number in CONNECTIONS
    ]
    assert (result["lost"], result["unproven"]) == (0, 0)
    assert all(one["ttft"][0] > 0 for one in result["runs"])
