"""The commands in README and docs/, run as they stand, against one local server of the demo model."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..kit.answers.shapes import shape_of
from ..kit.hosts.host import Host
from ..kit.pages import PAGES, Block, blocks_of, response_after
from ..kit.paths import ROOT

SERVER = "http://127.0.0.1:8080"
"""Where the examples look for the local server."""
TEXTS = {"generated_text", "content", "text", "partial_json"}
"""Fields of responses that are shown word for word."""
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
MAKE = [block for block in BLOCKS if block.language == "bash" and block.text.startswith("make ")]
COMMANDS = [
    block
    for block in BLOCKS
    # test_docs_adapters.py runs those, one after the other.
    if block.language == "bash" and block.page.name != "adapters.md"
    if not block.excused and not block.text.startswith("make ")
]
CONSOLE = [block for block in BLOCKS if block.language == "console"]


def records(text: str) -> list[Any]:
    """The JSON of a body, of each line, or of each event."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line and not line.startswith("event: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def texts(value: Any) -> list[str]:
    """What is shown word for word, in order."""
    if isinstance(value, list):
        return [text for inner in value for text in texts(inner)]
    if not isinstance(value, dict):
        return []
    own = [inner for key, inner in value.items() if key in TEXTS and isinstance(inner, str)]
    return own + [text for inner in value.values() for text in texts(inner)]


def clone(folder: Path, model: Path) -> Path:
    """A folder with what a command finds in a clone of the repository, and `model` as the model directory."""
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / ".cache").mkdir()
    (folder / "docs").mkdir()
    for place in (folder / ".cache" / "demo-model", folder / "MODEL_DIR"):
        place.symlink_to(model)
    return folder


def run(command: str, folder: Path) -> tuple[int, str, str]:
    """Status, output and errors of a command."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("block", MAKE, ids=str)
def test_make_knows_the_target(block: Block) -> None:
    """What it would do, not done: whole suites, and servers that do not end."""
    if shutil.which("make") is None:
        pytest.skip("there is no make here")
    status, _, errors = run(re.sub(r"^make ", "make -n ", block.text, flags=re.MULTILINE), ROOT)
    assert status == 0, errors


@pytest.mark.once
@pytest.mark.engine
@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_a_command_works(block: Block, tmp_path: Path, demo_model: Path, chat_server: Host) -> None:
    """And gives what is shown after it: the same fields, types and texts; numbers and ids may be others."""
    status, output, errors = run(block.text.replace(SERVER, chat_server.url), clone(tmp_path, demo_model))
    assert status == 0, errors
    if "curl" in block.text:
        came = records(output)
        assert came
        assert "error" not in json.dumps(came).replace('"error": null', "")
        if shown := response_after(block):
            expected = records(shown.text)
            assert [shape_of(one) for one in came] == [shape_of(one) for one in expected]
            assert texts(came) == texts(expected)


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
