"""What is counted of requests, and what /metrics makes of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from lmi.handler.telemetry.metrics import Histogram

from ...demo.model import question
from ...kit.api.errors import GenerationError, UnavailableError
from ...kit.api.handler import Access, Exposition, Reporter, application, started_service
from ...kit.api.types import Delta, Failed, Finish, Recording, Request, Started, Token
from ...kit.hosts.host import Client, Server, client, engine_process, eventually, model_directory
from ...kit.metered import Bench, Sample, parsed, timed_bench
from ...kit.paths import DOCS
from ...kit.user_code.engine import ScriptedEngine


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return timed_bench(monkeypatch)


def test_a_value_at_a_bound_belongs_to_its_range() -> None:
    """Prometheus' `le` is less or equal."""
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.add(value)
    assert histogram.counts == [2, 2, 1]
    assert (histogram.count, histogram.total) == (5, 7.5)


def test_the_times_of_a_stream(bench: Bench) -> None:
    bench.open()
    bench.engine.say(0, Started(7, cached_tokens=3))
    bench.step(100.5, 0)
    bench.step(100.7, 0)
    bench.step(101.5, 0, finish=3)
    metrics = bench.metrics
    assert metrics.first.total == pytest.approx(0.5)
    totals = [one.total for one in (metrics.inter_token, metrics.per_token, metrics.duration)]
    assert totals == pytest.approx([1.0, 0.5, 1.5])
    assert [one.count for one in (metrics.inter_token, metrics.per_token, metrics.duration)] == [2, 1, 1]
    assert (metrics.prompt_tokens, metrics.cached_tokens, metrics.generated_tokens) == (7, 3, 3)
    assert metrics.requests == {("lmi", 200, "ok"): 1}
    assert metrics.in_flight == 0


def test_streams_of_one_step_are_counted_each(bench: Bench) -> None:
    """Three streams: two go on from step to step, one misses a step and joins again."""
    for _ in range(3):
        bench.open()
    bench.step(101.0, 0, 1, 2)
    bench.step(102.0, 0, 1)
    bench.step(104.0, 0, 1, 2)
    inter_token = bench.metrics.inter_token
    # 1 s twice, 2 s twice, 3 s once.
    assert inter_token.count == 5
    assert inter_token.total == pytest.approx(9.0)
    assert bench.metrics.in_flight == 3


def test_sequences_that_share_a_step_are_no_gap(bench: Bench) -> None:
    bench.open(prompt="Hi", n=2)
    bench.clock.now = 101.0
    bench.engine.say(0, Delta(0, "a"), Delta(1, "b"))
    bench.clock.now = 102.0
    bench.engine.say(0, Delta(0, "a"), Delta(1, "b"))
    assert bench.metrics.inter_token.count == 1
    assert bench.metrics.inter_token.total == pytest.approx(1.0)


def test_of_what_is_not_streamed_only_the_end_is_known(bench: Bench) -> None:
    bench.open(stream=False)
    bench.engine.say(0, Started(4))
    bench.step(103.0, 0, finish=30)
    metrics = bench.metrics
    assert (metrics.first.count, metrics.inter_token.count, metrics.per_token.count) == (0, 0, 0)
    assert (metrics.duration.count, metrics.generated_tokens) == (1, 30)


def test_outcomes(bench: Bench) -> None:
    service = bench.service
    assert service.open(Request(b"{")).finished
    assert service.open(Request(b'{"inputs": "Hi", "parameters": {"top_p": 7}}')).finished
    bench.open().abort()
    aborted = bench.open()
    aborted.abort()
    aborted.abort()
    bench.open(stream=False)
    bench.engine.say(2, Failed.of(GenerationError("broken")))
    bench.open()
    bench.engine.say(3, Started(1), Delta(0, "a", (Token(1, "a"),)), Failed.of(UnavailableError("gone")))
    assert bench.metrics.requests == {
        ("lmi", 424, "refused"): 2,
        ("lmi", 200, "aborted"): 2,
        ("lmi", 424, "failed"): 1,
        ("lmi", 200, "failed"): 1,
    }
    assert bench.metrics.errors == {
        "invalid_payload": 1,
        "invalid_parameter": 1,
        "generation_failed": 1,
        "engine_unavailable": 1,
    }
    assert (bench.metrics.opened, bench.metrics.ended) == (4, 4)
    # Only good answers have a duration.
    assert bench.metrics.duration.count == 0


def test_seconds_of_audio(bench: Bench) -> None:
    bench.open()
    bench.engine.say(0, Started(7, recording=Recording(2.5, (0.0,))), Delta(0, "a", finish=Finish("eos")))
    assert bench.samples()["lmi_audio_seconds_total", ()] == 2.5


def test_the_time_of_decoding(bench: Bench) -> None:
    """Of requests that have media."""
    for number, seconds in enumerate((0.3, 0.0, 7.0)):
        bench.open()
        bench.engine.say(number, Started(7, decoding=seconds), Delta(0, "a", finish=Finish("eos")))
    samples = bench.samples()
    assert samples["lmi_media_decoding_seconds_count", ()] == 2
    assert samples["lmi_media_decoding_seconds_sum", ()] == pytest.approx(7.3)


def test_the_exposition(bench: Bench) -> None:
    bench.open()
    bench.engine.say(0, Started(7))
    bench.step(100.5, 0)
    bench.step(101.5, 0, finish=2)
    samples = bench.samples()
    assert samples["lmi_requests_total", (("dialect", "lmi"), ("outcome", "ok"), ("status", "200"))] == 1
    assert samples["lmi_prompt_tokens_total", ()] == 7
    assert samples["lmi_time_to_first_token_seconds_bucket", (("le", "0.25"),)] == 0
    assert samples["lmi_time_to_first_token_seconds_bucket", (("le", "0.5"),)] == 1
    assert samples["lmi_time_to_first_token_seconds_bucket", (("le", "+Inf"),)] == 1
    assert samples["lmi_time_to_first_token_seconds_sum", ()] == pytest.approx(0.5)
    assert samples["lmi_inter_token_latency_seconds_count", ()] == 1
    assert samples["lmi_engine_up", ()] == 1
    assert samples["process_open_fds", ()] > 0


def test_each_metric_is_documented(bench: Bench) -> None:
    """With its kind, as Prometheus' text form tells it."""
    bench.service.open(Request(b"{"))
    text = Exposition(bench.service).render("")[0].decode()
    kinds = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE lmi_"))
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `lmi_")]
    assert {row[0].strip("| ").split("`")[1]: row[1] for row in rows} == kinds


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", "application/openmetrics-text"),
    ],
)
@pytest.mark.anyio
async def test_the_content_type(bench: Bench, accept: str, content_type: str) -> None:
    transport = httpx.ASGITransport(application(bench.service))
    async with httpx.AsyncClient(transport=transport, base_url="http://local") as http:
        answer = await http.get("/metrics", headers={"accept": accept})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(content_type)
    assert answer.text.endswith("# EOF\n") == content_type.startswith("application")


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text"])
@pytest.mark.anyio
async def test_the_engines_own_metrics_come_last(bench: Bench, accept: str) -> None:
    theirs = b'# TYPE vllm:a counter\nvllm:a_total{engine="0"} 3.0\n'
    bench.engine.metrics = theirs + (b"# EOF\n" if accept.startswith("application") else b"")
    transport = httpx.ASGITransport(application(bench.service))
    async with httpx.AsyncClient(transport=transport, base_url="http://local") as http:
        text = (await http.get("/metrics", headers={"accept": accept})).text
    assert text.endswith(bench.engine.metrics.decode())
    assert text.count("# EOF") == (accept != "text/plain")
    read = openmetrics if accept != "text/plain" else text_string_to_metric_families
    assert {"lmi_engine_up", "vllm:a"} <= {family.name for family in read(text)}


@pytest.mark.anyio
async def test_an_engine_that_does_not_answer_is_not_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lmi.handler.scraping.exposition.ENGINE_S", 0.05)
    bench.engine.metrics = None
    transport = httpx.ASGITransport(application(bench.service))
    async with httpx.AsyncClient(transport=transport, base_url="http://local") as http:
        assert "lmi_engine_up 1.0" in (await http.get("/metrics", timeout=10)).text


@pytest.mark.anyio
async def test_metrics_need_the_key(bench: Bench) -> None:
    transport = httpx.ASGITransport(application(bench.service, Access("secret")))
    async with httpx.AsyncClient(transport=transport, base_url="http://local") as http:
        assert (await http.get("/metrics")).status_code == 401
        assert (await http.get("/metrics", headers={"authorization": "Bearer secret"})).status_code == 200


@pytest.mark.timing
def test_a_token_costs_little() -> None:
    """CPU time of this thread: a step of 256 streams. The bound is ten times what was measured (0.1 us)."""
    engine = ScriptedEngine()
    service = started_service(engine)
    meters = [service.metrics.open(Request(b"")) for _ in range(256)]
    for meter in meters:
        meter.streamed = True
    event = Delta(0, "a")
    begun_at = time.thread_time()
    for _ in range(100):
        for meter in meters:
            meter.note(event)
        service.metrics.tick()
    assert (time.thread_time() - begun_at) / 25600 < 1e-6


# The real engine.

ASKED = question("plain")


@pytest.mark.anyio
async def test_tasks_of_the_loops_are_counted(bench: Bench) -> None:
    """Those that wait too, on any thread; not those that have ended."""
    loop = asyncio.get_running_loop()
    bench.metrics.loops.extend([lambda: loop, lambda: loop, lambda: None])
    before = bench.metrics.tasks
    assert before >= 1
    waiting = [asyncio.ensure_future(asyncio.sleep(60)) for _ in range(5)]
    ended = asyncio.ensure_future(asyncio.sleep(0))
    await ended
    assert await asyncio.to_thread(lambda: bench.metrics.tasks) == before + 5
    assert bench.samples()["lmi_event_loop_tasks", ()] == before + 5
    reporter = Reporter(bench.metrics, bench.engine, 60.0, 1)
    assert reporter.report() is None
    waiting.pop().cancel()
    await asyncio.sleep(0)
    # A change is news.
    line, told = reporter.report() or ("", [])
    assert f" tasks={before + 4} " in line
    assert f"LmiTasks.Count:{before + 4}|#Worker:1|g" in told
    assert reporter.report() is None
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert bench.metrics.tasks == before


ENDLESS = question("endless").prompt


@pytest.fixture(scope="module")
def server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With room for two sequences."""
    folder = tmp_path_factory.mktemp("metrics")
    directory = model_directory(demo_model, folder / "model", {"option.max_rolling_batch_size": "2"})
    running = Server(directory, folder / "log")
    yield running
    running.stop()


async def scrape(server: Server) -> dict[Sample, float]:
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"{server.url}/metrics")
    assert answer.status_code == 200
    return parsed(answer.text)


@pytest.mark.engine
@pytest.mark.anyio
async def test_the_engine_tells_how_busy_it_is(server: Server) -> None:
    async with client(server) as http:
        before = await scrape(server)
        # Several rounds of them, so that there are still some when the engine tells; whole answers, so that this
        # process has nothing to do but to look.
        endless = {"inputs": ENDLESS, "parameters": {"max_new_tokens": 1900}}
        asking = [asyncio.create_task(http.post(endless)) for _ in range(12)]

        async def full() -> bool:
            now = await scrape(server)
            waiting, usage = now["lmi_sequences_waiting", ()], now["lmi_kv_cache_usage_ratio", ()]
            return now["lmi_sequences_running", ()] == 2 and 1 <= waiting <= 10 and 0 < usage <= 1

        await eventually(full)
        assert (await scrape(server))["lmi_engine_process_resident_memory_bytes", ()] > 1 << 20
        assert 1 <= (await scrape(server))["lmi_requests_in_flight", ()] <= 12
        for task in asking:
            task.cancel()
        await eventually(lambda: idle(server))
        after = await scrape(server)
        ended = {
            outcome: after.get(key, 0) - before.get(key, 0)
            for outcome, key in (
                (outcome, ("lmi_requests_total", (("dialect", "lmi"), ("outcome", outcome), ("status", "200"))))
                for outcome in ("ok", "aborted")
            )
        }
        assert sum(ended.values()) == 12
        assert ended["aborted"] >= 1


async def idle(server: Server) -> bool:
    now = await scrape(server)
    names = ("lmi_sequences_running", "lmi_sequences_waiting", "lmi_kv_cache_usage_ratio", "lmi_requests_in_flight")
    return all(now[name, ()] == 0 for name in names)


@pytest.mark.engine
def test_one_scrape_has_vllms_and_ours(server: Server) -> None:
    asked = httpx.post(f"{server.url}/invocations", json={"inputs": ASKED.prompt}, timeout=60)
    assert asked.status_code == 200
    text = httpx.get(f"{server.url}/metrics", headers={"accept": "application/openmetrics-text"}).text
    names = [family.name for family in openmetrics(text)]  # type: ignore[no-untyped-call]
    assert len(names) == len(set(names))
    assert {"lmi_requests", "lmi_engine_up", "vllm:generation_tokens", "vllm:num_requests_running"} <= {*names}


@pytest.mark.engine
@pytest.mark.anyio
async def test_a_rebuilt_engine_is_counted(server: Server) -> None:
    before = await scrape(server)
    assert before["lmi_engine_up", ()] == 1
    engine_process(server).kill()

    async def down() -> bool:
        return (await scrape(server))["lmi_engine_up", ()] == 0

    async def up() -> bool:
        return (await scrape(server))["lmi_engine_up", ()] == 1

    await eventually(down)
    assert "lmi_engine_process_resident_memory_bytes" not in {name for name, _ in await scrape(server)}
    await eventually(up, 120)
    after = await scrape(server)
    for name in ("lmi_engine_deaths_total", "lmi_engine_rebuilds_total"):
        assert after[name, ()] - before[name, ()] == 1
    async with client(server) as http:
        await served(http)


async def served(http: Client) -> None:
    assert (await http.post({"inputs": ASKED.prompt})).status_code == 200
