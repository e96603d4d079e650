"""A body as large as may be, good or faulty, beside a stream on each host: how long the stream pauses.

docs/robustness.md has what was measured.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ..demo.model import question
from ..kit.api.options import make_settings
from ..kit.faults.large_bodies import FAULTY, GOOD, longest_pause
from ..kit.hosts.host import Host, model_directory, running

pytestmark = [pytest.mark.engine, pytest.mark.timing]

ROUNDS = 5
"""The machine may be busy for a moment: what counts is the shortest of so many longest gaps."""
STREAM = {"inputs": question("endless").prompt, "parameters": {"max_new_tokens": 2000}, "stream": True}
SIZE = make_settings().limits.max_body_bytes
BODIES = {**GOOD, **{kind: made for kind, (made, _) in FAULTY.items()}}
KINDS = (
    "text", "text of escapes", "Chinese text", "image", "messages", "token ids", "objects",
    "the same key again and again", "white space", "NaN after a text", "NaN after objects", "cut off within a text",
    "not UTF-8 at the end of Chinese text", "too many strings",
)  # fmt: skip
"""The slowest, and the most likely; tests/formatters/common/test_body_cost.py has all."""


@pytest.fixture(scope="module", params=["server", "rolling", "async"])
def host(request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Each host that reads a body beside a stream, with the parrot, whose steps take no longer when others use the
    machine."""
    folder = tmp_path_factory.mktemp(request.param)
    model_dir = model_directory(demo_model, folder / "model", {})
    with running(request.param, model_dir, folder / "log", parrot=True) as host:
        yield host


def asked(host: Host, body: bytes) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    where = urlsplit(host.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=120)
    connection.request("POST", "/invocations", body, {"content-type": "application/json"})
    return connection, connection.getresponse()


class Stream(threading.Thread):
    """A stream that goes on until it is told to stop, and when each piece of it came."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host
        self.times: list[float] = []
        self.over = threading.Event()

    def run(self) -> None:
        connection, response = asked(self._host, json.dumps(STREAM).encode())
        assert response.status == 200
        while not self.over.is_set() and response.readline():
            self.times.append(time.perf_counter())
        connection.close()


def gap_beside(host: Host, body: bytes) -> tuple[float, int]:
    """Seconds that a stream pauses at most between the request with `body` and its answer; the answer's status."""
    stream = Stream(host)
    stream.start()
    while len(stream.times) < 50:
        assert stream.is_alive()
        time.sleep(0.01)
    begun = time.perf_counter()
    connection, response = asked(host, body)
    response.read()
    ended = time.perf_counter()
    connection.close()
    while stream.is_alive() and stream.times[-1] < ended:
        time.sleep(0.01)
    stream.over.set()
    stream.join()
    times = stream.times
    assert times[-1] > ended, "the stream was over before the answer came"
    return max(after - before for before, after in pairwise(times) if begun < after and before < ended), response.status


@pytest.mark.parametrize("kind", KINDS)
def test_no_stream_pauses(host: Host, kind: str) -> None:
    body = BODIES[kind](SIZE)
    gaps: list[float] = []
    most = longest_pause(SIZE)
    for _ in range(ROUNDS):
        gap, status = gap_beside(host, body)
        assert status in {200, 400, 424}
        gaps.append(gap)
        print(f"{kind}: {1000 * gap:.0f} ms, {status}")
        if gap < most:
            return
    pytest.fail(f"gaps of {[round(1000 * gap) for gap in gaps]} ms, expected less than {1000 * most:.0f}")
