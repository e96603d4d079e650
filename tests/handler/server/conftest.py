"""The local server on a real socket, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ...kit.hosts.local_server import Make, serving


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Make]:
    with serving(tmp_path) as make:
        yield make
