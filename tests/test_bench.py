"""`lmi bench`: what it reads in answers, and a small run of it against real layers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from lmi.handler.bench_load import Answered, run_load
from lmi.handler.bench_report import medians, table
from lmi.handler.bench_work import WORKLOADS, Figures, Timed, figures, prompts, quantile

from .endpoints import Host, model_directory

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LINE = b'{"token":{"id":1}}\n'


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def test_a_body_in_chunks_that_arrive_torn() -> None:
    sent = HEAD + chunk(LINE) + chunk(LINE * 2) + b"0\r\n\r\n"
    for size in (1, 7, 40, len(sent)):
        pieces = [sent[start : start + size] for start in range(0, len(sent), size)]
        answer = Answered(0, 0.0, [(float(number), piece) for number, piece in enumerate(pieces)])
        assert answer.status == 200 if size > 12 else True
        assert answer.body() == LINE * 3


def test_times_of_records_that_arrive_together() -> None:
    answer = Answered(0, 1.0, [(2.0, HEAD), (3.0, chunk(LINE)), (5.0, chunk(LINE) + chunk(LINE))])
    assert answer.times(b'{"token":') == [3.0, 5.0, 5.0]


@contextmanager
def server(answers: Sequence[bytes], pause: float = 0.0) -> Iterator[str]:
    """Answers every request with the same pieces, each in a write of its own."""
    loop = asyncio.new_event_loop()
    ready: list[asyncio.Server] = []
    up = threading.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                for piece in answers:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(pause)
        except asyncio.IncompleteReadError:
            writer.close()

    def run() -> None:
        asyncio.set_event_loop(loop)
        ready.append(loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0)))
        up.set()
        loop.run_forever()
        ready[0].close()
        loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    up.wait()
    yield f"http://127.0.0.1:{ready[0].sockets[0].getsockname()[1]}/invocations"
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_the_load_generator_finds_the_end_of_every_answer(size: int) -> None:
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nwhole\n"
    chunked = HEAD + chunk(LINE) * 3 + b"0\r\n\r\n"
    for sent, body in ((whole, b"whole\n"), (chunked, LINE * 3)):
        with server([sent[start : start + size] for start in range(0, len(sent), size)]) as url:
            load = run_load(url, [{"number": number} for number in range(7)], 3)
        assert [answer.number for answer in load.answers] == list(range(7))
        assert {answer.body() for answer in load.answers} == {body}
        assert load.seconds > 0


def run(layer: str, rate: int, connections: int = 1) -> Figures:
    answers = [Timed(0.0, [0.5, 0.6, 0.8], rate - 1), Timed(0.0, [0.7], rate)]
    return figures(layer, WORKLOADS[0], connections, asked=rate, answers=answers, seconds=2.0, cpu={"engine": 1.0})


def test_figures() -> None:
    one = run("x", 100)
    assert (one.tokens, one.lost, one.rate, one.requests) == (199, 1, 99.5, 2)
    assert one.ttft == (0.7, 0.7)
    assert one.gap == pytest.approx((0.2, 0.2))
    assert quantile([], 0.5) == 0
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile(range(100), 0.99) == 99


def test_the_table_has_medians_and_their_ratio_to_the_first_layer() -> None:
    runs = [run("engine alone", rate) for rate in (100, 300, 200)] + [run("server", rate) for rate in (90, 100, 110)]
    shown = medians(runs)
    assert [one.tokens for one in shown] == [399, 199]
    lines = table(shown).splitlines()
    assert lines[2].startswith(f"| {WORKLOADS[0].name} | 1 | engine alone | 200 | 1.00 |")
    assert lines[3].startswith(f"| {WORKLOADS[0].name} | 1 | server | 100 | 0.50 |")
    assert len({line.count("|") for line in lines}) == 1


def test_prompts_differ_from_their_first_token_on() -> None:
    made = prompts(100, 50)
    assert len({prompt[:6] for prompt in made}) == 100
    assert len({len(prompt) for prompt in made}) == 1


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lmi"), "bench", *arguments, "--tokens", "12", "--rounds", "1"]
    return subprocess.run(
        [*command, "--repeat", "1", "--connections", "1,4"], capture_output=True, text=True, timeout=280, check=False
    )


@pytest.mark.engine
def test_a_server_that_runs_already(host: Host, tmp_path: Path) -> None:
    done = bench("--layers", "", "--url", f"there={host.url}/invocations", "-o", str(tmp_path / "result"))
    assert done.returncode == 0, done.stderr
    runs = json.loads((tmp_path / "result.json").read_text())["runs"]
    assert [(one["workload"], one["connections"]) for one in runs] == [
        (workload.name, number) for workload in WORKLOADS for number in (1, 4)
    ]
    assert all(one["lost"] == 0 and one["tokens"] == 12 * one["requests"] for one in runs)
    assert all(0 < one["ttft"][0] <= one["ttft"][1] for one in runs)
    assert (tmp_path / "result.png").read_bytes().startswith(b"\x89PNG")
    assert done.stdout.count("there") == len(runs)


@pytest.mark.engine
def test_the_engine_alone_and_the_core(demo_model: Path, tmp_path: Path) -> None:
    directory = model_directory(demo_model, tmp_path / "model", {})
    done = bench(str(directory), "--layers", "engine,core", "--dialect", "lmi")
    assert done.returncode == 0, done.stderr
    # The engine's process writes its log there too.
    lines = [line for line in done.stdout.splitlines() if line.startswith("| LMI")]
    assert all(line.endswith("| 0 |") for line in lines)
    assert done.stdout.count("| engine alone |") == done.stdout.count("| core, no host |") == 4


def test_wrong_arguments() -> None:
    assert "--layers: expected some of engine, core, server" in bench("--layers", "moon").stderr
    assert "expected a model directory, or --url" in bench().stderr
    assert "--workload: expected one of LMI stream" in bench("--layers", "", "--workload", "none").stderr
