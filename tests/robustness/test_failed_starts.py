"""Starts that fail behind DJL: the host ends with the cause or serves it, in no mode does it wait for ever.

The host is the real one, the engine one of a few lines whose starts a file decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from ..kit.djl import hosting
from ..kit.djl.hosting import DjlHost, HostError
from ..kit.hosts.host import directory_without_model, djl_host
from ..kit.paths import ENGINE_FAULTS

pytestmark = [
    pytest.mark.once,
    pytest.mark.engine,
    pytest.mark.djl,
    pytest.mark.skipif(hosting.available() is not None, reason=str(hosting.available())),
]

Start = Callable[..., DjlHost]
STARTS = "starts"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a host, whose engine starts as the lines of the file `starts` say."""
    hosts: list[DjlHost] = []
    directory = directory_without_model(tmp_path / "model")

    def start(mode: str, **properties: str) -> DjlHost:
        host = djl_host(
            directory,
            tmp_path / "log",
            mode=mode,
            timeout=90,
            properties={"retry_threshold": "10", **properties},
            environment={"PYTHONPATH": str(ENGINE_FAULTS), "LMI_TEST_STARTS": str(tmp_path / STARTS)},
        )
        hosts.append(host)
        return host

    yield start
    for host in hosts:
        host.stop()


WRONG = ({"option.max_rolling_batch_sizes": "5"}, "", "option.max_rolling_batch_sizes: there is no such option")


@pytest.mark.parametrize(
    ("mode", "properties", "starts", "cause"),
    [
        ("rolling", *WRONG),
        ("async", *WRONG),
        ("async", {}, "short of everything", "of everything"),
        ("dynamic", {}, "fail no such luck", "no such luck"),
    ],
    ids=["rolling-option", "async-option", "async-memory", "dynamic-engine"],
)
def test_a_first_start_ends_the_host_with_the_cause(
    start: Start, tmp_path: Path, mode: str, properties: dict[str, str], starts: str, cause: str
) -> None:
    (tmp_path / STARTS).write_text(starts)
    begun = time.monotonic()
    with pytest.raises(HostError) as caught:
        start(mode, **properties)
    assert time.monotonic() - begun < 60
    log = (tmp_path / "log").read_text()
    assert cause in log
    if mode == "async":
        # What else the host says of a worker that starts never comes: it would wait for its own threads.
        assert "ended with -15" in str(caught.value) or "ended with 143" in str(caught.value)
        assert "ending the host" in log
    else:
        assert "the host did not start" in str(caught.value)


def test_async_a_first_start_that_takes_too_long_ends_the_host(start: Start, tmp_path: Path) -> None:
    """Java would give up waiting, and lock itself out."""
    (tmp_path / STARTS).write_text("sleep 60")
    begun = time.monotonic()
    with pytest.raises(HostError, match="ended with"):
        start("async", **{"option.model_loading_timeout": "10"})
    assert time.monotonic() - begun < 40
    assert "the model was not loaded within 8 seconds" in (tmp_path / "log").read_text()


def test_async_a_later_start_that_takes_too_long_goes_on(start: Start, tmp_path: Path) -> None:
    host = start("async", **{"option.model_loading_timeout": "10"})
    (tmp_path / STARTS).write_text("sleep 15\n" * 20)
    psutil.Process(host.worker_pid).kill()
    late = "the model did not start: the model was not loaded within 8 seconds"
    until(host, lambda response: late in response.text)
    (tmp_path / STARTS).write_text("")
    worker = host.worker_pid
    assert until(host, lambda response: response.status_code == 200).json() == {"generated_text": "an answer"}
    assert host.worker_pid == worker


def ask(host: DjlHost) -> httpx.Response:
    return httpx.post(f"{host.url}/invocations", json={"inputs": "hello"}, timeout=30)


def test_async_a_later_start_that_fails_is_told_to_clients_and_tried_again(start: Start, tmp_path: Path) -> None:
    """A worker dies, and however often Java starts another one, its engine finds no memory until a client was told."""
    host = start("async")
    assert ask(host).json() == {"generated_text": "an answer"}
    (tmp_path / STARTS).write_text("short of memory\n" * 20)
    worker = psutil.Process(host.worker_pid)
    worker.kill()
    until(host, lambda response: response.status_code == 424 and "did not start: of memory" in response.text)
    (tmp_path / STARTS).write_text("")
    assert until(host, lambda response: response.status_code == 200).json() == {"generated_text": "an answer"}
    assert psutil.pid_exists(host.pid)
    assert host.worker_pid != worker.pid


def until(host: DjlHost, holds: Callable[[httpx.Response], bool]) -> httpx.Response:
    """The first response of which something holds, of requests made one after another for a minute."""
    seen: list[str] = []
    deadline = time.monotonic() + 60
    while not holds(response := ask(host)):
        seen.append(f"{response.status_code} {response.text}")
        assert time.monotonic() < deadline, f"{seen}\n{host.log_text()}"
        time.sleep(0.2)
    return response


def test_async_an_option_that_has_become_wrong_is_told_until_the_model_is_loaded_anew(
    start: Start, tmp_path: Path
) -> None:
    host = start("async")
    assert ask(host).status_code == 200
    (tmp_path / "model" / "config.json").unlink()
    psutil.Process(host.worker_pid).kill()
    deadline = time.monotonic() + 30
    while "the model did not start" not in (response := ask(host)).text:
        assert time.monotonic() < deadline, response.text
        time.sleep(0.2)
    assert response.status_code == 424
    assert "config.json" in response.text
    # The host's threads are as they were: it can still tell, again and again.
    assert {ask(host).status_code for _ in range(5)} == {424}
