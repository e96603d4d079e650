"""Other hosts are waited for before the core is started, and told of its end."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from lmi.model.vllm.setup.hosts import ADDRESS, joined_by_others

from ....kit.api.engine import facts_of, join_leader
from ....kit.api.errors import StartError
from ....kit.api.options import make_settings
from ....kit.api.types import Settings
from ....kit.hosts.host import directory_without_model, free_port

ARGUMENTS = {"tensor_parallel_size": "2", "pipeline_parallel_size": "1", "max_num_seqs": "4"}


@pytest.fixture(autouse=True)
def _address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ADDRESS, "")
    monkeypatch.delenv(ADDRESS)


@pytest.fixture
def options() -> dict[str, str]:
    return {"nnodes": "2", "master_addr": "127.0.0.1", "node_port": str(free_port()), "node_start_timeout": "10"}


def settings(tmp_path: Path, options: dict[str, str], rank: int = 0) -> Settings:
    return make_settings(directory_without_model(tmp_path), **options, node_rank=str(rank))


def test_alone_nobody_is_waited_for(tmp_path: Path) -> None:
    with joined_by_others(make_settings(directory_without_model(tmp_path)), ARGUMENTS, threading.Event()):
        pass
    assert ADDRESS not in os.environ


def test_all_are_there_before_it_starts_and_are_told_when_it_ends(tmp_path: Path, options: dict[str, str]) -> None:
    joined: list[Any] = []
    told: list[dict[str, str]] = []
    # Both before the first is at work: making them writes the files that it reads.
    leader, follower = settings(tmp_path, options), settings(tmp_path, options, 1)

    def take_part() -> None:
        found = join_leader(follower.parallel, facts_of(follower), threading.Event(), patient=False)
        assert found is not None
        joined.append(found.connection)
        told.append(found.arguments)

    thread = threading.Thread(target=take_part)
    thread.start()
    ended = threading.Event()
    with joined_by_others(leader, ARGUMENTS, ended):
        thread.join(10)
        assert told == [ARGUMENTS]
        assert os.environ[ADDRESS] == "127.0.0.1"
    ended.set()
    assert joined[0].receive().cause == "the leader's engine has ended"
    joined[0].close()


def test_a_start_that_fails_is_told_to_all(tmp_path: Path, options: dict[str, str]) -> None:
    leader, follower = settings(tmp_path, options), settings(tmp_path, options, 1)
    joined: list[Any] = []
    thread = threading.Thread(
        target=lambda: joined.append(
            join_leader(follower.parallel, facts_of(follower), threading.Event(), patient=False)
        )
    )
    thread.start()

    def fail() -> None:
        with joined_by_others(leader, ARGUMENTS, threading.Event()):
            thread.join(10)
            raise RuntimeError("no memory")

    with pytest.raises(RuntimeError):
        fail()
    assert joined[0].connection.receive().cause == "the leader could not start: no memory"
    joined[0].connection.close()


def test_who_is_missing_ends_the_start(tmp_path: Path, options: dict[str, str]) -> None:
    started = []
    given = settings(tmp_path, {**options, "node_start_timeout": "1"})
    with (
        pytest.raises(StartError, match="node 1 of 2 did not join"),
        joined_by_others(given, ARGUMENTS, threading.Event()),
    ):
        started.append(1)
    assert not started
