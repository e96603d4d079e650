"""The bench of the check: vLLM's own server, and against it ours and the real DJL engine, in turns on one device."""

from __future__ import annotations

import shlex
import subprocess
import sys

from ..kit.djl import hosting
from ..kit.hosts.host import model_directory
from ..kit.paths import ROOT
from .engines import WHOLE, Engines, environment

__all__ = ["TABLES", "bench"]

SEQUENCES = "256"
"""How many at once, in vLLM's server and in ours."""
ROOM = {"option.max_rolling_batch_size": SEQUENCES, "job_queue_size": "1000"}
THEIRS = ["--dtype", "bfloat16", "--no-enforce-eager", "--gpu-memory-utilization", "0.1", "--max-num-seqs", SEQUENCES]
"""The same options for vLLM's server (tests/kit/hosts/vllm_server.py has the others)."""
LOAD = {
    "gpu": ["--connections", "1,16,64,256", "--tokens", "100", "--rounds", "3", "--repeat", "3"],
    # What shows that it runs: a CPU's figures are in docs/performance.md.
    "cpu": ["--connections", "1,8", "--tokens", "20", "--rounds", "2", "--repeat", "1"],
}
TABLES = "bench.md"


def bench(engines: Engines) -> str:
    """Runs it, and leaves its tables in TABLES; fails where a token is lost."""
    engines.close()
    model = model_directory(engines.demo, engines.folder / "bench", {**WHOLE, **ROOM})
    python = [sys.executable, "-m"]
    hosts = {
        "vllm serve": [*python, "tests.kit.hosts.vllm_server", str(model), *THEIRS],
        "local server": [*python, "lmi.handler.commands.cli", "serve", str(model), "--port", "0"],
    }
    missing = hosting.available()
    for mode in () if missing else ("rolling", "async"):
        hosts[mode] = [*python, "tests.kit.djl.serve", str(model), mode]
    command = [*python, "tests.bench", "--layers", "", "--dialect", "openai", "--together", *LOAD[engines.device]]
    for name, run in hosts.items():
        command += ["--host", f"{name}={shlex.join(run)}"]
    tables, log = engines.folder / TABLES, engines.folder / "bench.log"
    with tables.open("w") as output, log.open("w") as errors:
        done = subprocess.run(
            [*command, "-o", str(engines.folder / "bench-figures")],
            cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, check=False, env=environment(),
            timeout=3600,
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the bench ended with {done.returncode}:\n{log.read_text(errors='replace')[-2000:]}")
    without = f"; without DJL's engine: {missing}" if missing else ""
    return f"{', '.join(hosts)}: no token was lost (tables below){without}"
