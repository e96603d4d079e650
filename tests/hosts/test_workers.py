"""Two workers of one host, in rolling batch and async mode: both serve, they share sessions alone, one may die."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from ..demo.model import question
from ..kit.djl import hosting, other
from ..kit.djl.hosting import DjlHost
from ..kit.faults.kills import WORKER_APART, family, shared_memory
from ..kit.hosts.host import START_TIMEOUT, Streamed, begun, client, djl_host, eventually, model_directory, with_parrot

pytestmark = [
    pytest.mark.once,
    pytest.mark.engine,
    pytest.mark.djl,
    pytest.mark.anyio,
    pytest.mark.skipif(hosting.available() is not None, reason=str(hosting.available())),
]

ASKED = question("plain")
HELLO = {"inputs": ASKED.prompt}
ENDLESS = {"inputs": question("endless").prompt, "parameters": {"max_new_tokens": 1000}, "stream": True}
TWO = {"minWorkers": "2", "maxWorkers": "2", "retry_threshold": "10", "option.metrics_interval": "1"}
STOPPED = "Backend Python process is stopped."
STREAMS = 12
SESSION = "X-Amzn-SageMaker-Session-Id"


@dataclass
class Place:
    host: DjlHost
    folder: Path

    @property
    def workers(self) -> list[psutil.Process]:
        """The Python workers, the oldest first."""
        below = psutil.Process(self.host.pid).children(recursive=True)
        found = [child for child in below if any("djl_python_engine.py" in word for word in child.cmdline())]
        return sorted(found, key=psutil.Process.create_time)

    def answered(self) -> Counter[str]:
        """By the worker's process ID, how many requests it has said that it answered well."""
        counted: Counter[str] = Counter()
        for worker, count in re.findall(r"W-(\d+)-\S+: INFO::\S* ?in 1 s: .* ok=(\d+) ", self.host.log_text()):
            counted[worker] += int(count)
        return counted


def two_workers(mode: str, demo_model: Path, folder: Path, environment: Mapping[str, str]) -> Iterator[Place]:
    directory = model_directory(demo_model, folder / "model", {**TWO, "option.sessions_path": str(folder / "sessions")})
    # One starts after the other.
    with djl_host(
        directory,
        folder / "log",
        mode=mode,
        environment={"SERVING_CHUNKED_READ_TIMEOUT": "5", **environment},
        timeout=2 * START_TIMEOUT,
    ) as host:
        yield Place(host, folder)


@pytest.fixture(scope="module", params=["rolling", "async"])
def place(
    request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A host whose engines are parrots: none of this is their doing."""
    yield from two_workers(request.param, demo_model, tmp_path_factory.mktemp(request.param), with_parrot())


async def test_they_share_sessions(place: Place) -> None:
    async with httpx.AsyncClient(base_url=place.host.url, timeout=60) as http:

        async def post(body: object, session: str = "") -> httpx.Response:
            return await http.post("/invocations", json=body, headers={SESSION: session} if session else {})

        made = await asyncio.gather(*(post({"requestType": "NEW_SESSION"}) for _ in range(5)))
        sessions = [answer.headers[SESSION].partition(";")[0] for answer in made]
        used = await asyncio.gather(*(post(HELLO, session) for session in sessions * 4))
        closed = await asyncio.gather(*(post({"requestType": "CLOSE"}, session) for session in sessions))
    assert {answer.status_code for answer in (*used, *closed)} == {200}


async def test_both_serve_from_one_queue_and_are_told_apart(place: Place) -> None:
    assert len(place.workers) == 2
    both = {str(worker.pid) for worker in place.workers}
    async with client(place.host) as http:

        async def both_told() -> bool:
            answers = await asyncio.gather(*(http.post(HELLO) for _ in range(20)))
            assert [(answer.status_code, answer.json()["generated_text"]) for answer in answers] == [
                (200, ASKED.answer)
            ] * 20
            return place.answered().keys() == both

        await eventually(both_told)

    async def both_measured() -> bool:
        found = re.findall(r"model_metric - LmiInFlight\.Count:[\d.]+\|#(\w+):(\d+)", place.host.log_text())
        return set(found) == {("Worker", "0"), ("Worker", "1")}

    # DJL Serving itself has its metrics at /server/metrics.
    if not other.COMMAND:
        await eventually(both_measured)


def sockets(processes: list[psutil.Process]) -> set[object]:
    """The names of their Unix sockets, and their listening ports."""
    found: set[object] = set()
    for process in processes:
        found |= {one.laddr for one in process.net_connections("unix") if one.laddr}
        found |= {one.laddr.port for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN}
    return found


def written(processes: list[psutil.Process]) -> set[Path]:
    """The files and pipes that they may write to; standard error is DJL's, a pipe for each worker."""
    found: set[Path] = set()
    for process in processes:
        for entry in Path(f"/proc/{process.pid}/fd").iterdir():
            try:
                flags = re.search(
                    r"^flags:\s*(\d+)", (entry.parents[1] / "fdinfo" / entry.name).read_text(), re.MULTILINE
                )
                target = entry.readlink()
            except OSError:
                continue
            # O_WRONLY or O_RDWR; of anonymous inodes (epoll, pidfd) all have the same name.
            if flags and int(flags[1], 8) & 3 and not str(target).startswith(("/dev/null", "anon_inode:")):
                found.add(target)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["rolling", "async"])
async def test_nothing_of_two_engines_clashes(mode: str, demo_model: Path, tmp_path: Path) -> None:
    """With vLLM, each worker's model in a process beside vLLM's core, with which that shares memory."""
    with contextmanager(two_workers)(mode, demo_model, tmp_path, WORKER_APART) as place:
        async with client(place.host) as http:
            answers = await asyncio.gather(*(http.post(HELLO) for _ in range(20)))
            assert {(answer.status_code, answer.json()["generated_text"]) for answer in answers} == {
                (200, ASKED.answer)
            }
            first, second = (family(worker) for worker in place.workers)
            for held in (sockets, written, shared_memory):
                one, two = held(first), held(second)
                assert one, held.__name__
                assert not one & two, held.__name__


async def test_one_is_killed_and_the_other_goes_on(place: Place) -> None:
    """The streams of the other one end as they should; until there are two again, what the dead one takes is 400."""
    async with client(place.host) as http:
        streams = [Streamed() for _ in range(STREAMS)]
        tasks = [asyncio.create_task(http.stream(ENDLESS, streamed)) for streamed in streams]
        await begun(streams)
        killed, other_one = place.workers
        # The call that a stopped worker has got cannot end: in rolling batch nobody notices a death between two calls.
        killed.suspend()
        await asyncio.sleep(0.2)
        killed.kill()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        whole = [streamed for streamed in streams if "generated_text" in streamed.documents[-1]]
        assert 0 < len(whole) < STREAMS
        # DJL closes the connections of the killed one's streams, or ends them with a chunk of its own (async mode).
        assert all(isinstance(one, httpx.TransportError | Streamed) for one in ended)

        seen: set[tuple[int, str]] = set()

        async def two_again() -> bool:
            answers = await asyncio.gather(*(http.post(HELLO) for _ in range(10)))
            seen.update((answer.status_code, message(answer)) for answer in answers)
            return len(place.workers) >= 2 and {answer.status_code for answer in answers} == {200}

        await eventually(two_again, 180)
        assert (200, "") in seen
        assert seen <= {(200, ""), (400, STOPPED), (500, "Inference Engine Failure")}
    assert other_one in place.workers
    assert killed not in place.workers


def message(answer: httpx.Response) -> str:
    """Of Java's errors; empty for an answer of ours."""
    return str(json.loads(answer.text).get("message", ""))
