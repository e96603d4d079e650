"""Whether a host serves already, and how one is ended that does not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lmi.handler.djl import start_failure

from ...kit.paths import ROOT

LISTENING = "import socket; s = socket.socket({family}); s.bind({address}); {listen}print(s, flush=True); input()"


@pytest.mark.parametrize(
    ("family", "address", "listen", "serves"),
    [
        ("socket.AF_INET", "('127.0.0.1', 0)", "s.listen(); ", True),
        ("socket.AF_INET6", "('::1', 0)", "s.listen(); ", True),
        ("socket.AF_INET", "('127.0.0.1', 0)", "", False),
        ("socket.AF_UNIX", "'\\0lmi-test'", "s.listen(); ", False),
    ],
    ids=["IPv4", "IPv6", "bound only", "domain"],
)
def test_a_host_that_serves_has_a_port_open(family: str, address: str, listen: str, serves: bool) -> None:
    """A worker's own port beside it says nothing of the host."""
    source = LISTENING.format(family=family, address=address, listen=listen)
    with (
        socket.create_server(("127.0.0.1", 0)),
        subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host,
    ):
        assert host.stdout is not None
        assert host.stdout.readline()
        assert start_failure.listens(host.pid) is serves
        host.communicate(b"\n")


def test_a_host_that_cannot_be_looked_at_counts_as_serving() -> None:
    assert start_failure.listens(2**22 + 1)


HOST = """
import signal, subprocess, sys, time
{told}
worker = subprocess.Popen([sys.executable, "-c", '''
import os
from lmi.handler.djl import start_failure
start_failure.LOG_TIME_S, start_failure.EXIT_TIMEOUT_S = 0.3, {limit}
start_failure.end_host(os.getppid())
'''])
worker.wait()
"""


def test_another_users_host_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java must not be told of the failure by an exception either."""

    def refuse(_pid: int, _signal: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(start_failure, "LOG_TIME_S", 0.0)
    monkeypatch.setattr(os, "kill", refuse)
    start_failure.end_host(os.getppid())


@pytest.mark.parametrize(
    ("told", "limit", "status"),
    [
        ("", 20, -15),
        # A JVM has hooks to run first.
        ("signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), sys.exit(143)))", 20, 143),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", 0.3, -9),
    ],
    ids=["TERM", "in its own time", "KILL"],
)
def test_a_host_is_ended(told: str, limit: float, status: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(ROOT) / ".typing")}
    source = HOST.format(told=told, limit=limit)
    done = subprocess.run([sys.executable, "-c", source], env=environment, check=False, timeout=30)
    assert done.returncode == status
