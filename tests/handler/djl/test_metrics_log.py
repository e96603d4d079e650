"""The lines with metrics that are logged behind DJL Serving: each number, in both forms."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from lmi.handler.djl.metrics_log import Reporter

from ...kit.api.errors import GenerationError
from ...kit.api.types import EngineStats, Failed, Request, Started
from ...kit.djl import hosting
from ...kit.hosts.host import Host, client, eventually, model_directory, start
from ...kit.metered import Bench, timed_bench
from ...kit.paths import DOCS

pytestmark = pytest.mark.once


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return timed_bench(monkeypatch)


def test_every_number_is_told(bench: Bench) -> None:
    reporter = Reporter(bench.metrics, bench.engine, 60, 1)
    # A stream of three tokens, one refused, one failed, one aborted, one that goes on.
    bench.open()
    bench.engine.say(0, Started(7))
    bench.step(100.5, 0)
    bench.step(100.7, 0)
    bench.step(101.5, 0, finish=3)
    bench.service.open(Request(b'{"inputs": "Hi", "parameters": {"top_p": 7}}'))
    bench.open(stream=False)
    bench.engine.say(1, Failed.of(GenerationError("broken")))
    bench.open().abort()
    bench.open()
    bench.engine.stats = EngineStats(running=5, waiting=2, cache_usage=0.25)
    bench.engine.deaths = 1
    reported = reporter.report()
    assert reported is not None
    line, metrics = reported
    assert line == (
        "in 60 s: requests=4 aborted=1 failed=1 ok=1 refused=1 in_flight=1 running=5 waiting=2 tasks=0 kv_cache=0.250 "
        "prompt_tokens=7 generated_tokens=3 first_token=0.5000s inter_token=0.5000s total=1.5000s "
        "error_generation_failed=1 error_invalid_parameter=1 engine_deaths=1"
    )
    assert metrics == [
        "LmiRequests.Count:4|#Worker:1|c",
        "LmiRequests_ok.Count:1|#Worker:1|c",
        "LmiRequests_refused.Count:1|#Worker:1|c",
        "LmiRequests_failed.Count:1|#Worker:1|c",
        "LmiRequests_aborted.Count:1|#Worker:1|c",
        "LmiPromptTokens.Count:7|#Worker:1|c",
        "LmiGeneratedTokens.Count:3|#Worker:1|c",
        "LmiEngineDeaths.Count:1|#Worker:1|c",
        "LmiInFlight.Count:1|#Worker:1|g",
        "LmiRunning.Count:5|#Worker:1|g",
        "LmiWaiting.Count:2|#Worker:1|g",
        "LmiTasks.Count:0|#Worker:1|g",
        "LmiKvCacheUsage.Percent:25.000|#Worker:1|g",
        "LmiTimeToFirstToken.Milliseconds:500.000|#Worker:1|g",
        "LmiInterTokenLatency.Milliseconds:500.000|#Worker:1|g",
        "LmiRequestDuration.Milliseconds:1500.000|#Worker:1|g",
    ]


def test_only_what_is_new_is_told(bench: Bench) -> None:
    reporter = Reporter(bench.metrics, bench.engine, 10, 1)
    assert reporter.report() is None
    exchange = bench.open()
    reported = reporter.report()
    # Nothing has been counted yet, but a request is open.
    assert reported is not None
    assert reported[0].startswith("in 10 s: requests=0 in_flight=1 ")
    exchange.abort()
    reported = reporter.report()
    assert reported is not None
    assert reported[0].startswith("in 10 s: requests=1 aborted=1 in_flight=0 ")
    assert reporter.report() is None


@pytest.mark.engine
@pytest.mark.djl
@pytest.mark.anyio
async def test_the_log_names_requests_as_the_host_does(host: Host) -> None:
    """What a client is told as its request's id is what the log says of that request."""
    body = {"inputs": "Hi", "parameters": {"top_p": 7}}
    async with httpx.AsyncClient(base_url=host.url, timeout=60) as http:
        answers = [
            await http.post("/invocations", json=body, headers=headers)
            for headers in ({"x-request-id": f"ours-{host.worker_pid}"}, {})
        ]
    names = [answer.headers["x-request-id"] for answer in answers]
    assert names[0] == f"ours-{host.worker_pid}"
    assert re.fullmatch(r"[0-9a-f-]{36}", names[1])

    async def logged() -> bool:
        return all(f"request {name} refused: invalid_parameter" in host.log_text() for name in names)

    await eventually(logged)


@pytest.mark.engine
@pytest.mark.djl
@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["rolling", "async"])
async def test_behind_djl(kind: str, demo_model: Path, tmp_path: Path) -> None:
    """Each number in docs/operations.md reaches DJL's own log of metrics; times of tokens come from streams."""
    if missing := hosting.available():
        pytest.skip(missing)
    directory = model_directory(demo_model, tmp_path / "model", {"option.metrics_interval": "1"})
    host = start(kind, directory, tmp_path / "log", parrot=True)
    try:
        async with client(host) as http:
            streamed = await http.stream({"inputs": "Hi", "stream": True, "parameters": {"max_new_tokens": 8}})
            assert len(streamed.lines) >= 2
            refused = await http.post({"inputs": "Hi", "parameters": {"top_p": 7}})
            assert refused.status_code == 424

        told: dict[str, float] = {}

        async def reported() -> bool:
            told.clear()
            for name, value in re.findall(r"model_metric - (Lmi\w+)\.\w+:([\d.]+)", host.log_text()):
                told[name] = max(told.get(name, 0.0), float(value))
            return told.get("LmiRequests_refused", 0.0) > 0 and told.keys() >= {
                "LmiInterTokenLatency",
                "LmiRequestDuration",
            }

        await eventually(reported)
        named = set(re.findall(r"`(Lmi\w+)`", (DOCS / "operations.md").read_text()))
        assert len(named) > 10
        assert named <= told.keys()
        assert told["LmiGeneratedTokens"] > 0
        assert told["LmiTimeToFirstToken"] > 0
        assert told["LmiInterTokenLatency"] > 0
        text = host.log_text()
        assert re.search(r"in 1 s: .*in_flight=\d+ running=\d+ waiting=\d+ tasks=\d+ kv_cache=\d", text)
        assert re.search(r"first_token=\d\S+s inter_token=\d\S+s total=\d", text)
        assert re.search(r"in 1 s: .* error_invalid_parameter=1", text)
    finally:
        host.stop()
