"""A server with a model that says what scripts say (tests/kit/played), which the agents of a process share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ..kit.agents import model
from ..kit.hosts.host import Server, with_played
from ..kit.played.scripts import Stage

START_S = 600.0
"""A start takes a minute, on a machine that others keep busy five."""


@dataclass(frozen=True)
class Served:
    """The server, and the stage on which its model is."""

    url: str
    stage: Stage


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`lmi serve`, as a user starts it."""
    folder = tmp_path_factory.mktemp("stage")
    server = Server(
        model.build(folder / "model"),
        folder / "log",
        environment=with_played(folder),
        timeout=START_S,
    )
    yield Served(server.url, Stage(folder))
    server.stop()
