"""Two hosts, one of which is killed, stands still, or cannot join: named on both sides, and back when it is."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ...kit.faults.kills import ENDLESS, alive, end, family, served
from ...kit.hosts.follower import LOOPBACK, Follower, two_hosts
from ...kit.hosts.host import Client, Host, Server, Streamed, begun, client, engine_process, eventually, model_directory

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.anyio, pytest.mark.once]

SILENCE = 3
"""Seconds: option.node_timeout."""
SOON = 2.0
BACK = 240.0


@dataclass
class Pair:
    directory: Path
    folder: Path
    leader: Host
    follower: Follower

    def follow(self, *arguments: str) -> Follower:
        """A follower anew."""
        number = len(list(self.folder.glob("follower*")))
        self.follower = Follower(self.directory, self.folder / f"follower{number}.log", arguments)
        return self.follower


@pytest.fixture(scope="module")
def pair(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    options = two_hosts(**{"option.node_timeout": str(SILENCE)})
    directory = model_directory(demo_model, folder / "model", options)
    follower = Follower(directory, folder / "follower0.log")
    try:
        leader = Server(directory, folder / "log", environment=LOOPBACK)
    except BaseException:
        follower.stop()
        raise
    both = Pair(directory, folder, leader, follower)
    yield both
    both.follower.stop()
    leader.stop()


async def streaming(http: Client) -> tuple[Streamed, asyncio.Task[Streamed]]:
    """A stream that has begun."""
    streamed = Streamed()
    body = {"inputs": ENDLESS, "parameters": {"max_new_tokens": 1900}, "stream": True}
    task = asyncio.create_task(http.stream(body, streamed))
    await begun([streamed])
    return streamed, task


async def test_a_host_that_is_switched_off(pair: Pair) -> None:
    """All of it is killed at once: its connections close."""
    async with client(pair.leader) as http:
        await eventually(lambda: served(http), BACK)
        streamed, task = await streaming(http)
        gone = family(pair.follower.engine) + family(engine_process(pair.leader))
        killed = end_all(pair.follower)
        await task
        assert streamed.documents[-1]["error"] == "node 1 (127.0.0.1) closed its connection"
        assert time.monotonic() - killed < SOON
        assert pair.follower.wait() == -signal.SIGKILL
        pair.follow()
        await eventually(lambda: served(http), BACK)
    assert not alive(gone)


def end_all(follower: Follower) -> float:
    """Kills a follower and what it has started; when."""
    processes = family(follower.engine)
    follower.process.kill()
    for process in processes:
        end(process, signal.SIGKILL)
    return time.monotonic()


async def test_a_host_that_stands_still(pair: Pair) -> None:
    async with client(pair.leader) as http:
        await eventually(lambda: served(http), BACK)
        streamed, task = await streaming(http)
        os.kill(pair.follower.process.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        await task
        took = time.monotonic() - stopped
        os.kill(pair.follower.process.pid, signal.SIGCONT)
        said = f"node 1 (127.0.0.1) has been silent for {SILENCE} s (option.node_timeout)"
        assert streamed.documents[-1]["error"] == said
        assert SILENCE - 1.5 < took < SILENCE + SOON
        await eventually(lambda: served(http), BACK)
    assert "lmi: ended: the leader (127.0.0.1) closed its connection" in pair.follower.log_text()


async def test_a_leader_that_is_killed(pair: Pair) -> None:
    """What the follower has of the model goes too; it waits for the leader, or ends if it is to serve once."""
    async with client(pair.leader) as http:
        await eventually(lambda: served(http), BACK)
        gone = family(pair.follower.engine)
        assert pair.follower.stop() == 0
        assert not alive(gone)
        pair.follow("--once")
        await eventually(lambda: served(http), BACK)
        gone = family(pair.follower.engine)
        killed = end(engine_process(pair.leader), signal.SIGKILL)
        assert pair.follower.wait(20) == 1
        assert time.monotonic() - killed < 2 * SOON
        assert "lmi: ended: the leader (127.0.0.1) closed its connection" in pair.follower.log_text()
        assert not alive(gone)
        pair.follow()
        await eventually(lambda: served(http), BACK)


async def test_who_differs_is_told_and_ends(pair: Pair) -> None:
    """While the leader waits for one that fits."""
    async with client(pair.leader) as http:
        await eventually(lambda: served(http), BACK)
        pair.follower.stop()
        other = pair.follow("--set=max_model_len=512")
        assert other.wait(60) == 1
        said = "option.max_model_len: the leader has 2048, node 1 (127.0.0.1) has 512"
        assert f"lmi: the leader (127.0.0.1) refuses this host: {said}" in other.log_text()
        assert f"node 1 (127.0.0.1) cannot join: {said}" in pair.leader.log_text()
        pair.follow()
        await eventually(lambda: served(http), BACK)
