"""Fixtures that many tests share."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from .kit.djl import hosting
from .kit.hosts import Host, Server, model_directory, start
from .kit.paths import CACHE

# The machine may be busy with other tests: what takes long there says nothing.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The demo model's directory; `make` rebuilds it when its sources change, here it is built where it is missing."""
    from .demo.model import build

    target = CACHE / "demo-model"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "demo-model.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / "serving.properties").exists():
            build(target)
    return target


@pytest.fixture(scope="session", params=["server", "rolling", "async"])
def host(request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The demo model behind each host in turn."""
    kind = request.param
    if kind != "server" and (missing := hosting.available()):
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp(kind)
    running = start(kind, model_directory(demo_model, folder / "model", {}), folder / "log")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def chat_server(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The local server with the demo model's parsers of tool calls and of reasoning."""
    folder = tmp_path_factory.mktemp("chat")
    properties = {
        "option.tool_call_parser": "hermes",
        "option.reasoning_parser": "qwen3",
        "option.served_model_name": "demo",
        # The model was taught to write JSON, but not to stop putting spaces between.
        "option.structured_outputs_config": '{"disable_any_whitespace": true}',
    }
    running = Server(model_directory(demo_model, folder / "model", properties), folder / "log")
    yield running
    running.stop()


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder with a short path, for sockets."""
    with tempfile.TemporaryDirectory(prefix="lmi-test-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests that are coroutines run on asyncio."""
    return "asyncio"
