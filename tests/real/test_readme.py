"""README's commands, run as they stand, against the model that `make serve` has."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..kit.examples import answers_as_shown, clone, commands_of
from ..kit.hosts.host import Server
from ..kit.pages import Block
from ..kit.paths import README


@pytest.mark.once
@pytest.mark.engine
@pytest.mark.parametrize("block", commands_of(README), ids=str)
def test_a_command_works(block: Block, tmp_path: Path, smollm2: Path, real_server: Server) -> None:
    answers_as_shown(block, real_server.url, clone(tmp_path, smollm2))
