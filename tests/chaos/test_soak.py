"""`python -m tests.bench --soak`: what it finds, and that thousands of requests leave nothing behind on any host."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from ..bench.__main__ import main
from ..bench.layers import UrlLayer
from ..bench.soak import Held, KiB, Sample, Soak, soak
from ..bench.soak_report import report, table, verdict
from ..bench.work import CHAT_STREAM, WORKLOADS, Measured, Timed, Workload
from ..kit.api.errors import OptionError
from ..kit.djl import hosting
from ..kit.hosts.host import Host, eventually
from .cases import ENDLESS
from .hosts import Victim

pytestmark = pytest.mark.once

REQUESTS = 2000
WITHOUT_A_TASK = int(os.environ.get("LMI_SOAK_REQUESTS", "500"))
"""After which no task is left; 100,000 take ten minutes on each host (docs/robustness.md)."""
LIMIT = 4
"""KiB that each of the second half may leave in the handler's process, and in the engine's: 0.3 and 0.5 were seen."""


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
    connections = [1, 8, 32] if requests <= REQUESTS else [1, 16, *[64] * 8]
    return soak(layer, WORKLOADS, connections, tokens=2, requests=requests, say=print, rest=0.5)


@pytest.mark.engine
@pytest.mark.djl
def test_thousands_of_small_requests(host: Host) -> None:
    """In the processes that are ours. What 100,000 requests may leave is 0.5 KiB (docs/robustness.md), which so few
    cannot show: the C library's arenas still grow, in vLLM's core by tens of MiB."""
    done = soaked(Layer("host", host))
    assert (done.requests, done.lost, done.unproven, done.leaks) == (REQUESTS, 0, 0, [])
    handlers, *engines = done.judged
    assert set(engines) == {"engine process", "engine core"}
    later = replace(done, samples=tuple(one for one in done.samples if one.requests >= REQUESTS // 2))
    assert len(later.samples) > 3
    for role in (handlers, "engine process"):
        for what in ("resident", "own"):
            assert later.slope(role, what) / KiB < LIMIT, (role, what, done.samples)


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
@pytest.mark.timeout(300 + WITHOUT_A_TASK / 50)
async def test_no_task_is_left(probed: Victim) -> None:
    """Nor an object of ours that stands for a request. Metrics and log give the same number."""
    layer = Layer("probed", probed.host)
    asked = {"inputs": ENDLESS, "parameters": {"max_new_tokens": 1000}, "stream": True}
    with httpx.stream("POST", layer.url, json=asked, timeout=60) as answer:
        next(answer.iter_raw())
        # What is looked for below is found where it is.
        assert probed.alive()["requests"] > 0
    soaked(layer, 100)
    before = await probed.settled(lambda found: not found["requests"])
    assert before["requests"] == 0
    assert bool(before["tasks"]) == (probed.kind != "rolling")

    async def told() -> bool:
        return tasks_told(probed) == before["tasks"]

    await eventually(told)
    assert soaked(layer, WITHOUT_A_TASK).lost == 0
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


class Lossy:
    """Nothing but texts: the streamed chat's lack a token, where the usage has all."""

    name = "lossy"
    process_id = None

    def __init__(self, *, loses: bool) -> None:
        self._loses = loses
        self.asked: list[str] = []

    def start(self) -> None: ...

    def run(self, workload: Workload, prompts: Sequence[str], tokens: int, connections: int) -> Measured:
        self.asked += prompts
        lost = self._loses and workload is CHAT_STREAM
        answers = [Timed(0.0, [0.1], tokens, "a" if lost else "a b") for _ in prompts]
        return Measured(
            layer=self.name,
            workload=workload,
            connections=connections,
            asked=tokens,
            answers=answers,
            seconds=1.0,
            cpu={},
        )

    def stop(self) -> None: ...


def leaking(requests: Sequence[int], *, lost: int = 0, own: int = 10240, resident: int = 10240) -> Soak:
    """A worker that keeps so many bytes of each request, and a descriptor of every 200."""
    samples = [
        Sample(number, {"worker": Held(1000 + resident * number, 1000 + own * number, 5 + number // 200, 3)})
        for number in requests
    ]
    return Soak("leaking", requests[-1], lost, 0, 2.0, tuple(samples))


def test_a_leak_is_found() -> None:
    one = leaking(range(100, 1100, 100), resident=20480)
    assert one.slope("worker") == pytest.approx(10240)
    assert one.slope("worker", "resident") == pytest.approx(20480)
    assert one.leaks == ["leaking: the worker had 5 descriptors, and has 10"]
    assert leaking([100, 199]).leaks == []
    java = tuple(Sample(number, {"java": Held(1000 * number, 1000 * number, 5, number)}) for number in (100, 200))
    assert Soak("rolling", 200, 0, 0, 1.0, java).faults(0.5) == []
    line = table([one]).splitlines()[-1]
    assert line == ("| leaking | 1,000 | 500 | 0 | worker | 2.0 | 19.5 | 20.000 | 1.0 | 9.8 | 10.000 | 5, 10 | 3, 3 |")


@pytest.mark.parametrize(
    ("one", "fault"),
    [
        (leaking([100, 199], own=0, resident=0), None),
        (leaking([100, 199], own=511, resident=511), None),
        (leaking([100, 199], own=0, resident=600), "the worker's resident memory grows by 0.586 KiB a request"),
        (leaking([100, 199], own=600, resident=0), "the worker's memory without files grows by 0.586 KiB a request"),
        (leaking([100, 199], own=0, resident=0, lost=3), "leaking: 3 tokens were lost"),
        (leaking([100, 200], own=0, resident=0), "leaking: the worker had 5 descriptors, and has 6"),
    ],
)
def test_the_verdict(one: Soak, fault: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Printed and written whatever it is; one of FAILED is an error of the command."""
    raised = None
    try:
        report([one], tmp_path / "result")
    except OptionError as error:
        raised = error.message
    assert (raised is None) == (fault is None)
    line = capsys.readouterr().out.splitlines()[-1]
    assert line == verdict(one, 0.5)
    assert line.startswith("passed: leaking: no token lost" if fault is None else f"FAILED: {raised}")
    assert (fault or "0.5 at most") in line
    (written,) = json.loads((tmp_path / "result.json").read_text())
    assert (written["layer"], written["limit"]) == ("leaking", 0.5)
    assert written["faults"] == ([raised] if raised else [])
    assert written["slopes"]["worker"] == {what: one.slope("worker", what) / KiB for what in ("resident", "own")}


def test_every_request_is_made_once() -> None:
    layer = Lossy(loses=False)
    done = soak(layer, WORKLOADS, [1, 2], tokens=2, requests=1180, say=lambda text: None)
    assert (done.requests, done.samples[0].requests, done.samples[-1].requests) == (1180, 150, 1180)
    assert len(layer.asked) == 1180
    # The last batch is 30 whole chats; 50 streamed ones have the same prompts and 20 more.
    assert (done.lost, done.unproven) == (0, 20)


def test_each_form_of_a_dialect_is_held_against_the_other() -> None:
    done = soak(Lossy(loses=True), WORKLOADS, [1, 2], tokens=2, requests=400, say=lambda text: None)
    # Of 400 requests a quarter is the streamed chat; two of three characters are one token and a bit.
    assert done.lost == 200
    alone = soak(Lossy(loses=True), [CHAT_STREAM], [1], tokens=2, requests=100, say=lambda text: None)
    assert (alone.lost, alone.unproven) == (0, 100)


@pytest.mark.parametrize(
    ("fault", "limit", "said"), [("leak", "20", "FAILED"), ("", "100000", "passed"), ("drop", "100000", "FAILED")]
)
def test_a_server_that_keeps_or_loses_something(
    fault: str, limit: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.bench.run.soak", partial(soak, rest=0.1))
    server = shlex.join([sys.executable, "-m", "tests.bench.checks.server", fault])
    command = ["--host", f"there={server}", "--soak", "600", "--tokens", "4", "--connections", "1,4"]
    code = 0
    try:
        main([*command, "--memory-limit", limit])
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == (0 if said == "passed" else 1)
    printed = capsys.readouterr().out
    assert f"\n{said}: there: " in printed
    found = {"leak": "the host's memory without files grows by 1", "drop": "tokens were lost", "": "no token lost"}
    assert found[fault] in printed
