"""`lmi bench --soak`: what it finds, and that a thousand requests leave nothing behind on any host."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from lmi.handler.bench_layers import UrlLayer
from lmi.handler.bench_soak import Held, Sample, Soak, report, soak, table
from lmi.handler.bench_work import WORKLOADS, Figures, Workload, figures
from lmi.model.errors import OptionError

from ..djl import hosting
from ..endpoints import Host, eventually
from .hosts import Victim

REQUESTS = 1000


class Layer(UrlLayer):
    """A host that runs already, whose process is known."""

    def __init__(self, name: str, host: Host) -> None:
        super().__init__(name, f"{host.url}/invocations")
        self._host = host

    @property
    def process_id(self) -> int:
        """The worker's: the engine's process is a child of it."""
        return self._host.worker_pid


def soaked(layer: Layer, requests: int = REQUESTS) -> Soak:
    return soak(layer, WORKLOADS, [1, 8, 32], tokens=2, requests=requests, say=print, rest=0.5)


@pytest.mark.engine
@pytest.mark.djl
def test_a_thousand_small_requests(host: Host) -> None:
    done = soaked(Layer("host", host))
    assert (done.requests, done.lost, done.leaks) == (REQUESTS, 0, [])
    assert len(done.samples[-1].held) == 2
    # Far above what is measured over many more requests (docs/robustness.md), far below what a kept request takes.
    assert done.slope(next(iter(done.samples[0].held))) < 8192


@pytest.fixture(params=["server", "rolling", "async"])
def probed(request: pytest.FixtureRequest, demo_model: Path, tmp_path: Path) -> Iterator[Victim]:
    """A host of its own that tells what is alive in it."""
    if request.param != "server" and (missing := hosting.available()):
        pytest.skip(missing)
    victim = Victim(request.param, demo_model, tmp_path, {"option.metrics_interval": "1"})
    yield victim
    victim.stop()


@pytest.mark.engine
@pytest.mark.djl
@pytest.mark.anyio
async def test_no_task_is_left(probed: Victim) -> None:
    """Nor an object of ours that stands for a request. Metrics and log give the same number."""
    layer = Layer("probed", probed.host)
    soaked(layer, 100)
    before = await probed.settled(lambda found: not found["requests"])
    assert before["requests"] == 0
    assert bool(before["tasks"]) == (probed.kind != "rolling")

    async def told() -> bool:
        return tasks_told(probed) == before["tasks"]

    await eventually(told)
    soaked(layer, 500)
    after = await probed.settled(lambda found: found == before)
    assert after == before
    await eventually(told)


def tasks_told(victim: Victim) -> int | None:
    """How many tasks there are by what users see; the answer of the metrics is a task itself."""
    if victim.kind == "server":
        metrics = httpx.get(f"{victim.host.url}/metrics").text
        return int(float(re.findall(r"^lmi_event_loop_tasks (\S+)$", metrics, re.MULTILINE)[0])) - 1
    lines = re.findall(r"in 1 s: requests=.* tasks=(\d+) ", victim.host.log_text())
    return int(lines[-1]) if lines else None


class Leaking:
    """A server that keeps ten KiB of each request, and a descriptor of every batch."""

    name = "leaking"
    process_id = None

    def start(self) -> None: ...

    def run(self, workload: Workload, prompts: Sequence[str], tokens: int, connections: int) -> Figures:
        return figures("leaking", workload, connections, asked=tokens, answers=[], seconds=1.0, cpu={})

    def stop(self) -> None: ...


def leaking(requests: Sequence[int], lost: int = 0) -> Soak:
    samples = [Sample(number, {"worker": Held(1000 + 10240 * number, 5 + number // 200, 3)}) for number in requests]
    return Soak("leaking", requests[-1], lost, 2.0, tuple(samples))


def test_a_leak_is_found() -> None:
    one = leaking(range(100, 1100, 100))
    assert one.slope("worker") == pytest.approx(10240)
    assert one.leaks == ["leaking: the worker had 5 descriptors, and has 10"]
    assert leaking([100, 199]).leaks == []
    java = tuple(Sample(number, {"java": Held(1000, 5, number)}) for number in (100, 200))
    assert Soak("rolling", 200, 0, 1.0, java).leaks == []
    line = table([one]).splitlines()[-1]
    assert line == "| leaking | 1,000 | 500 | 0 | worker | 1.0 | 9.8 | 10.000 | 5, 10 | 3, 3 |"


def test_what_was_lost_or_leaked_ends_with_an_error(tmp_path: Path) -> None:
    report([leaking([100, 199])], tmp_path / "result")
    assert json.loads((tmp_path / "result.json").read_text())[0]["layer"] == "leaking"
    with pytest.raises(OptionError, match="3 tokens were lost"):
        report([leaking([100, 199], lost=3)], None)
    with pytest.raises(OptionError, match="had 5 descriptors, and has 6"):
        report([leaking([100, 200])], None)


def test_every_request_is_made_once() -> None:
    done = soak(Leaking(), WORKLOADS, [1, 2], tokens=2, requests=1030, say=lambda text: None)
    assert (done.requests, done.samples[0].requests, done.samples[-1].requests) == (1030, 150, 1030)


@pytest.mark.engine
@pytest.mark.parametrize("host", ["server"], indirect=True)
def test_the_command(host: Host, tmp_path: Path) -> None:
    """Of a server at a URL nothing is known but its answers."""
    arguments = ["--url", f"there={host.url}/invocations", "--soak", "100", "--tokens", "2", "--connections", "1,4"]
    command = [str(Path(sys.executable).parent / "lmi"), "bench", *arguments, "-o", str(tmp_path / "result")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| there")]
    assert (line[1], line[3]) == ("100", "0")
    (kept,) = json.loads((tmp_path / "result.json").read_text())
    assert kept["samples"][-1] == {"requests": 100, "held": {}}
