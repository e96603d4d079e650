"""Fixtures that many tests share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from .kit.hosts.host import Host
from .kit.hosts.pool import CHAT, HostPool
from .kit.installed import remember_entry_points
from .kit.packages import locked
from .kit.paths import CACHE, TESTS

if TYPE_CHECKING:
    from .kit.engines.pool import BackendPool

# The machine may be busy with other tests: what takes long there says nothing.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
remember_entry_points()


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The demo model's directory; `make` rebuilds it when its sources change, here it is built where it is missing."""
    from .demo.model import build

    target = CACHE / "demo-model"
    with locked(CACHE / "demo-model.lock"):
        if not (target / "serving.properties").exists():
            build(target)
    return target


@pytest.fixture(scope="session")
def hosts(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostPool]:
    """Hosts of the demo model, which tests share."""
    pool = HostPool(demo_model, tmp_path_factory.mktemp("hosts"))
    yield pool
    pool.close()


@pytest.fixture(params=["server", "rolling", "async"])
def host(request: pytest.FixtureRequest, hosts: HostPool) -> Host:
    """The demo model behind each host in turn."""
    return hosts.get(request.param)


@pytest.fixture
def chat_server(hosts: HostPool) -> Host:
    """The demo model behind the local server."""
    return hosts.get("server")


@pytest.fixture(scope="session")
def backends(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackendPool]:
    """Backends of the demo model, which tests share."""
    from .kit.engines.pool import BackendPool

    pool = BackendPool(demo_model, tmp_path_factory.mktemp("backends"))
    yield pool
    pool.close()


@pytest.fixture
def plain_backend(backends: BackendPool) -> Iterator[Any]:
    """The demo model on vLLM, without parsers, stepped by hand."""
    backend = backends.get({})
    yield backend
    assert not backend.busy


@pytest.fixture
def chat_backend(backends: BackendPool) -> Iterator[Any]:
    """The same with parsers of tool calls and of reasoning."""
    backend = backends.get(CHAT)
    yield backend
    assert not backend.busy


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder with a short path, for sockets."""
    with tempfile.TemporaryDirectory(prefix="lmi-test-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests that are coroutines run on asyncio."""
    return "asyncio"


RUN_BY = {
    "hosts": "hosts",
    "clients": "hosts",
    "handler": "hosts",
    "oracles": "slow",
    "robustness": "slow",
}
"""By folder, the mark of what needs an engine there and is not marked `contract` or `slow` itself."""
TOOLS = {"agents", "bench", "chaos"}
"""Folders all of whose tests are `slow`: of the tests' own tools, and of other people's agents."""
UNITS = {"formatters", "handler", "model", "project"}
"""Folders whose tests are `unit`, unless one of these marks says what else they need."""
NO_UNIT = ("engine", "processes", "djl", "browser", "hosts", "contract", "slow", "timing")


LONGEST = {"real-server", "host-server", "host-rolling", "backends"}
"""Groups that take a minute and more."""


def pytest_configure() -> None:
    """`make test-container` names the folder that the handler was unpacked into: what is tested is that one."""
    if folder := os.environ.get("LMI_PACKAGED"):
        import lmi.handler

        assert lmi.handler.__path__ == [f"{folder}/lmi/handler"]


CHOSEN = {name: os.environ[name] for name in ("VLLM_WORKER_MULTIPROC_METHOD",) if name in os.environ}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Each test finds the environment as it was chosen: vLLM's CPU platform writes `spawn` into it, wherever a
    VllmConfig is made, and cores that spawn know nothing of what a test has changed in its own process.
    """
    os.environ.update(CHOSEN)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of units alone, nothing is read of folders that have none: each process reads all there is."""
    elsewhere = collection_path.parent == TESTS and collection_path.is_dir() and collection_path.name not in UNITS
    return True if config.option.markexpr == "unit" and elsewhere else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Says which command runs what (pyproject.toml, markers), and which tests one process of pytest-xdist has together.

    Those that share a host are a group, all others of a file another; a group is not left before it is done. The
    longest come first, then what starts engines, so that no process is left with a long group at the end.
    """
    groups: dict[str, int] = {}
    order: dict[pytest.Item, tuple[bool, bool, int]] = {}
    for item in items:
        folder = _place(item.path).partition("/")[0]
        marks = {mark.name for mark in item.iter_markers()}
        engine = "engine" in marks
        if folder == "agents":
            item.add_marker(pytest.mark.agents)
        by_folder = "slow" if folder in TOOLS else RUN_BY.get(folder)
        if (engine or folder in TOOLS) and by_folder and marks.isdisjoint(("contract", "slow")):
            item.add_marker(by_folder)
        if folder in UNITS and marks.isdisjoint(NO_UNIT):
            item.add_marker(pytest.mark.unit)
        group = _group(item)
        item.add_marker(pytest.mark.xdist_group(group))
        order[item] = (group not in LONGEST, not engine, groups.setdefault(group, len(groups)))
    items.sort(key=order.__getitem__)


@cache
def _place(path: Path) -> str:
    """Once a file: thousands of items are in hundreds of them."""
    return path.relative_to(TESTS).as_posix()


def _group(item: pytest.Item) -> str:
    params: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    fixtures: list[str] = getattr(item, "fixturenames", [])
    if "host" in fixtures and "hosts" in fixtures:
        return f"host-{params.get('host', 'server')}"
    if "real_server" in fixtures:
        return "real-server"
    if "backends" in fixtures:
        return "backends"
    return "host-server" if "hosts" in fixtures else _place(item.path)
