"""Thousands of requests leave nothing behind on any host, and a leak would be found."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from ..bench.figures import Measured, Timed
from ..bench.layers import UrlLayer
from ..bench.workloads import CHAT_STREAM, WORKLOADS, Workload
from ..kit.djl import hosting
from ..kit.hosts.host import Host, eventually
from .cases import ENDLESS
from .hosts import Victim
from .soak import Held, KiB, Sample, Soak, soak, table

pytestmark = pytest.mark.once

MANY = 90_000
REQUESTS = int(os.environ.get("LMI_SOAK_REQUESTS", "2000"))
"""100,000 take ten minutes on each host (docs/robustness.md)."""
WITHOUT_A_TASK = int(os.environ.get("LMI_SOAK_REQUESTS", "500"))
"""After which no task is left."""
LIMIT = 4 if REQUESTS < MANY else 0.5
"""KiB that each of the second half may leave in the handler's process, and in the engine's. Of few requests it is more:
the C library's arenas still grow, in vLLM's core by tens of MiB; 0.3 and 0.5 were seen."""


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
    many = requests >= MANY
    connections, tokens, rest = ([1, 16, *[64] * 8], 8, 6.0) if many else ([1, 8, 32], 2, 0.5)
    done = soak(layer, WORKLOADS, connections, tokens=tokens, requests=requests, say=print, rest=rest)
    print(table(done))
    return done


@pytest.mark.engine
@pytest.mark.djl
@pytest.mark.timeout(300 + REQUESTS / 50)
def test_thousands_of_small_requests(host: Host) -> None:
    """In the processes that are ours."""
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


class Lossy(UrlLayer):
    """Nothing but texts: the streamed chat's lack a token, where the usage has all."""

    def run(self, workload: Workload, prompts: Sequence[str], tokens: int, connections: int) -> Measured:
        lost = workload is CHAT_STREAM
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


def leaking(requests: Sequence[int], own: int = 10240, resident: int = 10240) -> Soak:
    """A worker that keeps so many bytes of each request, and a descriptor of every 200."""
    samples = [
        Sample(number, {"worker": Held(1000 + resident * number, 1000 + own * number, 5 + number // 200, 3)})
        for number in requests
    ]
    return Soak("leaking", requests[-1], 0, 0, 2.0, tuple(samples))


def test_a_leak_is_found() -> None:
    one = leaking(range(100, 1100, 100), resident=20480)
    assert one.slope("worker") == pytest.approx(10240)
    assert one.slope("worker", "resident") == pytest.approx(20480)
    assert one.leaks == ["leaking: the worker had 5 descriptors, and has 10"]
    assert leaking([100, 199]).leaks == []
    java = tuple(Sample(number, {"java": Held(1000 * number, 1000 * number, 5, number)}) for number in (100, 200))
    assert Soak("rolling", 200, 0, 0, 1.0, java).leaks == []
    assert table(one).splitlines()[-1] == "| worker | 2.0 | 19.5 | 20.000 | 1.0 | 9.8 | 10.000 | 5, 10 | 3, 3 |"


def test_each_form_of_a_dialect_is_held_against_the_other() -> None:
    done = soak(Lossy("lossy", ""), WORKLOADS, [1, 2], tokens=2, requests=400, say=lambda text: None)
    # Of 400 requests a quarter is the streamed chat; two of three characters are one token and a bit.
    assert done.lost == 200
    alone = soak(Lossy("lossy", ""), [CHAT_STREAM], [1], tokens=2, requests=100, say=lambda text: None)
    assert (alone.lost, alone.unproven) == (0, 100)
