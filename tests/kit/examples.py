"""Commands of README and docs/, run as they stand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .answers.shapes import shape_of
from .pages import Block, blocks_of, response_after

__all__ = ["SERVER", "answers_as_shown", "clone", "commands_of", "run"]

SERVER = "http://127.0.0.1:8080"
"""Where the examples look for the local server."""
TEXTS = {"generated_text", "content", "text", "partial_json"}
"""Fields of responses that are shown word for word."""


def commands_of(page: Path) -> list[Block]:
    """Those that are run: no targets of make, and none that says what it would need."""
    found = [block for block in blocks_of(page) if block.language == "bash" and not block.excused]
    return [block for block in found if not block.text.startswith("make ")]


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


def answers_as_shown(block: Block, url: str, folder: Path) -> None:
    """Runs a command in `folder` (`clone`) against the server at `url`; asserts that it works, and gives what is shown
    after it: the same fields, types and texts; numbers and ids may be others."""
    status, output, errors = run(block.text.replace(SERVER, url), folder)
    assert status == 0, errors
    if "curl" in block.text:
        came = records(output)
        assert came
        assert "error" not in json.dumps(came).replace('"error": null', "")
        if shown := response_after(block):
            expected = records(shown.text)
            assert [shape_of(one) for one in came] == [shape_of(one) for one in expected]
            assert texts(came) == texts(expected)
