"""The commands of docs/adapters.md, run in their order against a server with adapters, and what they come to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..kit.adapters import write_adapter
from ..kit.examples import SERVER, run
from ..kit.hosts.host import Server
from ..kit.models.adapted import adapted_directory
from ..kit.pages import PAGES, blocks_of

pytestmark = [pytest.mark.engine, pytest.mark.hosts, pytest.mark.once]

(PAGE,) = (page for page in PAGES if page.name == "adapters.md")
COMMANDS = [block.text for block in blocks_of(PAGE) if block.language == "bash"]
OPTIONS = [block.text for block in blocks_of(PAGE) if block.language == "properties"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adapters")


@pytest.fixture(scope="module")
def server(demo_model: Path, folder: Path) -> Iterator[Server]:
    """With the options that the page shows first."""
    base = json.loads((demo_model / "config.json").read_bytes())
    lines = [line.partition("=") for text in OPTIONS for line in text.splitlines() if not line.startswith("#")]
    model = adapted_directory(demo_model, folder / "model", {name: value for name, _, value in lines})
    write_adapter(model / "adapters" / "pirate", base, seed=1, scale=0.3)
    write_adapter(folder / "formal", base, seed=2, scale=0.3)
    server = Server(model, folder / "log")
    yield server
    server.stop()


def answers(server: Server, folder: Path) -> list[Any]:
    """What each command of the page prints, as JSON."""
    printed: list[Any] = []
    for command in COMMANDS:
        status, output, errors = run(command.replace(SERVER, server.url).replace("/ADAPTERS", str(folder)), folder)
        assert status == 0, errors
        printed.append(json.loads(output))
    return printed


def test_the_commands_do_what_the_page_says(server: Server, folder: Path) -> None:
    body, header, model, registered, listed, pinned, removed = answers(server, folder)
    assert body["generated_text"]
    assert header == body
    assert model["choices"][0]["text"] == body["generated_text"]
    assert model["model"] == "pirate"
    assert registered == {"status": "Adapter formal registered"}
    assert [adapter["name"] for adapter in listed["adapters"]] == ["formal", "pirate"]
    assert pinned == {"status": "Adapter formal updated"}
    assert removed == {"status": "Adapter formal unregistered"}
