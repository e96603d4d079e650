"""The commands in docs/, run as they stand, against one local server of the demo model; README's targets of make."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from ..kit.examples import answers_as_shown, clone, commands_of, run
from ..kit.hosts.host import Host
from ..kit.pages import PAGES, Block, blocks_of
from ..kit.paths import README, ROOT
from ..kit.rows import each_row

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
MAKE = [block for block in BLOCKS if block.language == "bash" and block.text.startswith("make ")]
COMMANDS = [
    block
    for page in PAGES
    # tests/real runs README's; test_docs_adapters.py those, one after the other.
    if page != README and page.name != "adapters.md"
    for block in commands_of(page)
]
CONSOLE = [block for block in BLOCKS if block.language == "console"]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
@each_row("block", MAKE, ids=str)
def test_make_knows_the_target(block: Block) -> None:
    """What it would do, not done: whole suites, and servers that do not end. What make looks for first is told."""
    told = f"make -n PYTHON={sys.executable} DEVICE=cpu "
    status, _, errors = run(re.sub(r"^make ", told, block.text, flags=re.MULTILINE), ROOT)
    assert status == 0, errors


@pytest.mark.once
@pytest.mark.engine
@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_a_command_works(block: Block, tmp_path: Path, demo_model: Path, chat_server: Host) -> None:
    """And gives what is shown after it: the same fields, types and texts; numbers and ids may be others."""
    answers_as_shown(block, chat_server.url, clone(tmp_path, demo_model))


@pytest.mark.processes
@pytest.mark.parametrize("block", CONSOLE, ids=str)
def test_a_session_goes_as_shown(block: Block, tmp_path: Path) -> None:
    """Those of `lmi` only, which tell of options: any model directory will do."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "serving.properties").write_text("option.entryPoint=lmi.handler\n")
    folder = clone(tmp_path, model)
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        _, output, errors = run(command, folder)
        assert output + errors == shown
