"""`lmi follow`: which settings it takes, what it tells the leader, how it ends. With engines: tests/hosts/devices."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from lmi.handler.commands.follow import follow, follower_settings

from ...kit.api.engine import Followers, facts_of
from ...kit.api.errors import OptionError, StartError
from ...kit.api.handler import lmi_command
from ...kit.api.types import Settings
from ...kit.hosts.host import directory_without_model, free_port
from ...kit.rows import each_row


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """A command keeps what it does with signals; a test does not."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def overrides() -> dict[str, str]:
    return {"nnodes": "2", "master_addr": "127.0.0.1", "node_port": str(free_port()), "node_rank": "1"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return directory_without_model(tmp_path / "model")


@each_row(
    ("given", "message"),
    [
        ({"nnodes": "1"}, "option.nnodes: expected the number of hosts, 2 or more, but it is not set"),
        (
            {"node_rank": "0"},
            "option.node_rank: expected 1 to 1, the number of this host, got 0: it is the leader",
        ),
        ({"node_rank": "2"}, "option.node_rank: expected less than option.nnodes=2, got 2"),
    ],
)
def test_who_is_no_follower(directory: Path, overrides: dict[str, str], given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as refused:
        follower_settings(directory, {**overrides, **given}, {})
    assert message in refused.value.message


def test_secure_mode_is_djl_servings(directory: Path, overrides: dict[str, str]) -> None:
    environment = {"SAGEMAKER_SECURE_MODE": "true", "SAGEMAKER_SECURITY_CONTROLS": "DISALLOW_TRUST_REMOTE_CODE"}
    with pytest.raises(OptionError, match=r"^SAGEMAKER_SECURE_MODE: expected false without DJL Serving"):
        follower_settings(directory, overrides, environment)


def settings_of(directory: Path, overrides: dict[str, str], **more: str) -> Settings:
    return follower_settings(directory, {**overrides, **more}, {})


@pytest.mark.processes
def test_an_engine_that_does_not_start_is_told_to_the_leader(
    directory: Path, overrides: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A model without any layer, or a machine without vLLM."""
    settings = settings_of(directory, overrides)
    lost: SimpleQueue[str] = SimpleQueue()
    leader = Followers(settings.parallel, facts_of(settings), {}, lost.put)
    gathering = threading.Thread(target=leader.gather)
    gathering.start()
    cause = follow(settings, once=True)
    gathering.join(10)
    assert cause
    assert "could not start" in cause
    assert lost.get(timeout=2) == f"node 1 (127.0.0.1): {cause}"
    assert f"lmi: ended: {cause}" in capsys.readouterr().out
    leader.close("over")


def test_a_leader_that_ends(directory: Path, overrides: dict[str, str]) -> None:
    """Before the engine has started: it is ended too."""
    settings = settings_of(directory, overrides)
    leader = Followers(settings.parallel, facts_of(settings), {}, lambda _: None)

    def gather() -> None:
        leader.gather()
        leader.close("the leader's engine has ended")

    gathering = threading.Thread(target=gather)
    gathering.start()
    assert follow(settings, once=True) == "the leader's engine has ended"
    gathering.join(10)


def test_signals_end_it(directory: Path, overrides: dict[str, str]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        timer = threading.Timer(0.5, os.kill, [os.getpid(), number])
        timer.start()
        begun = time.monotonic()
        assert follow(settings_of(directory, overrides)) is None
        assert time.monotonic() - begun < 20


def test_a_leader_that_is_not_there(
    directory: Path, overrides: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = [f"--set={name}={text}" for name, text in {**overrides, "node_start_timeout": "1"}.items()]
    with pytest.raises(StartError):
        follow(settings_of(directory, overrides, node_start_timeout="1"))
    with pytest.raises(SystemExit) as ended:
        lmi_command(["follow", str(directory), *options])
    assert ended.value.code == 1
    port = overrides["node_port"]
    said = f"lmi: the leader (127.0.0.1:{port}) could not be joined within 1 s (option.node_start_timeout): "
    assert capsys.readouterr().err.splitlines()[-1].startswith(said)
