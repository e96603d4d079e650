"""A browser for a file's tests, and servers for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ....kit.clients.browser import Browser
from ....kit.hosts.local_server import Make, serving


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Make]:
    with serving(tmp_path) as make:
        yield make
