"""vLLM's core as a GPU has it, in a process of its own: nobody waits for its steps, and what it sends is read."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ...kit.api.engine import Channel, EngineLoop, FromEngine, ToEngine
from ...kit.api.options import MediaRules, make_settings
from ...kit.api.types import Delta, EngineEvent, Failed, Generation, Sampling
from ...kit.engines.backends import run
from ...kit.engines.start import EngineClient, in_process, own_process
from ...kit.hosts.host import model_directory
from ...kit.paths import TESTS

pytestmark = [pytest.mark.engine, pytest.mark.timing]

CONNECTOR = {"kv_connector": "SlowConnector", "kv_connector_module_path": "slow_connector", "kv_role": "kv_both"}


@pytest.fixture
def arrivals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with what reaches the core."""
    monkeypatch.syspath_prepend(TESTS / "kit" / "models")
    file = tmp_path / "arrivals"
    file.touch()
    monkeypatch.setenv("LMI_TEST_ARRIVALS", str(file))
    return file


@pytest.fixture
def model_dir(demo_model: Path, tmp_path: Path) -> Path:
    properties = {"option.kv_transfer_config": json.dumps(CONNECTOR)}
    return model_directory(demo_model, tmp_path / "model", properties)


@pytest.fixture
def engine(model_dir: Path, arrivals: Path) -> Iterator[EngineClient]:
    del arrivals
    engine = own_process(make_settings(model_dir))
    engine.start()
    yield engine
    engine.close()


def asked(**transfer: Any) -> Generation:
    sampling = Sampling(temperature=0.0, max_tokens=5)
    return Generation(request_id="r", prompt="Count up.", sampling=sampling, kv_transfer_params=transfer or None)


class Ended:
    """A sink that waits for the end."""

    def __init__(self) -> None:
        self.last: EngineEvent | None = None
        self._ended = threading.Event()

    def __call__(self, event: EngineEvent) -> None:
        if isinstance(event, Failed) or (isinstance(event, Delta) and event.finish):
            self.last = event
            self._ended.set()

    def well(self) -> bool:
        """Whether it ended as it should."""
        return self._ended.wait(60) and isinstance(self.last, Delta)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def test_a_request_reaches_the_core_while_a_step_runs(engine: EngineClient, arrivals: Path) -> None:
    """Within 20 ms of its submission, though the step takes two seconds."""
    slow, other = Ended(), Ended()
    engine.submit(asked(step_s=2.0), slow)
    while not any(line.startswith("step") for line in lines(arrivals)):
        time.sleep(0.01)
    before = len(lines(arrivals))
    waits: list[float] = []
    # Others first: a thread's first work takes longer.
    for number in range(10):
        submitted = time.monotonic()
        engine.submit(asked(), other)
        time.sleep(0.1)
        (arrived,) = lines(arrivals)[before + number :]
        waits.append(float(arrived.split()[1]) - submitted)
    assert slow.last is None, "the step is over"
    assert sorted(waits)[len(waits) // 2] < 0.02, waits
    assert slow.well()
    assert other.well()


def test_what_an_idle_core_sends_is_read(model_dir: Path, arrivals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connector that keeps a request's blocks makes the core send about a thousand outputs a second for ever."""
    del arrivals
    # Here the loop has the test's process.
    gone = threading.Event()
    monkeypatch.setattr("lmi.model.process.engine_loop.end_with_host", gone.set)
    backend = in_process(make_settings(model_dir))
    ours, theirs = socket.socketpair()
    channel, host = Channel[ToEngine](ours, ToEngine), Channel[FromEngine](theirs, FromEngine)
    received = 0
    receive = backend.core.receive

    async def counted() -> Any:
        nonlocal received
        outputs = await receive()
        received += 1
        return outputs

    async def serve() -> None:
        await EngineLoop(channel, backend.backend, MediaRules()).run()

    try:
        run(backend, asked(kept=True))
        assert not backend.busy
        monkeypatch.setattr(backend.core, "receive", counted)
        serving = asyncio.run_coroutine_threadsafe(serve(), backend.loop)
        time.sleep(0.5)
        begun, waiting, until = received, 0, time.monotonic() + 60
        while received - begun <= 500 and time.monotonic() < until:
            time.sleep(0.1)
            waiting = max(waiting, backend.unread)
        assert received - begun > 500
        assert waiting < 20
        host.close()
        serving.result(10)
        assert gone.wait(10)
    finally:
        host.close()
        channel.close()
        backend.close()
