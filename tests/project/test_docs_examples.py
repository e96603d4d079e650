"""The commands and the clients in README and docs/, run as they stand, against one local server of the demo model."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..demo.model import QUESTIONS
from ..kit.bridge import Bridge, serving
from ..kit.hosts import Host
from ..kit.pages import PAGES, Block, blocks_of, response_after
from ..kit.paths import DOCS, README, ROOT
from ..kit.scripts import OURS, run_python, theirs
from ..kit.shapes import shape_of

SERVER = "http://127.0.0.1:8080"
"""Where the examples look for the local server."""
TEXTS = {"generated_text", "content"}
"""Fields of responses that are shown word for word."""
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
MAKE = [block for block in BLOCKS if block.language == "bash" and block.text.startswith("make ")]
COMMANDS = [
    block for block in BLOCKS if block.language == "bash" and not block.excused and not block.text.startswith("make ")
]
CONSOLE = [block for block in BLOCKS if block.language == "console"]
CLIENTS = [block for page in (README, DOCS / "clients.md") for block in blocks_of(page) if block.language == "python"]


def records(text: str) -> list[Any]:
    """The JSON of a body, of each line, or of each event."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def texts(value: Any) -> list[str]:
    """What is shown word for word, in order."""
    if isinstance(value, list):
        return [text for inner in value for text in texts(inner)]
    if not isinstance(value, dict):
        return []
    own = [inner for key, inner in value.items() if key in TEXTS and isinstance(inner, str)]
    return own + [text for inner in value.values() for text in texts(inner)]


@pytest.fixture
def clone(tmp_path: Path, demo_model: Path) -> Path:
    """What a command finds in a clone of the repository, and a model directory to work on."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / ".cache").mkdir()
    (tmp_path / "docs").mkdir()
    for place in (tmp_path / ".cache" / "demo-model", tmp_path / "MODEL_DIR"):
        place.symlink_to(demo_model)
    return tmp_path


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
    status, _, errors = run(block.text.replace("make ", "make -n ", 1), ROOT)
    assert status == 0, errors


@pytest.mark.engine
@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_a_command_works(block: Block, clone: Path, chat_server: Host) -> None:
    """And gives what is shown after it: the same fields, types and texts; numbers and ids may be others."""
    status, output, errors = run(block.text.replace(SERVER, chat_server.url), clone)
    assert status == 0, errors
    if "curl" in block.text:
        came = records(output)
        assert came
        assert "error" not in json.dumps(came)
        if shown := response_after(block):
            expected = records(shown.text)
            assert [shape_of(one) for one in came] == [shape_of(one) for one in expected]
            assert texts(came) == texts(expected)


@pytest.mark.parametrize("block", CONSOLE, ids=str)
def test_a_session_goes_as_shown(block: Block, clone: Path) -> None:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        _, output, errors = run(command, clone)
        assert output + errors == shown


def library(code: str) -> str:
    """What an example is about: the first module that it imports and that is not Python's own."""
    imported: list[str] = re.findall(r"^(?:from|import) ([a-z0-9_]+)", code, re.MULTILINE)
    return next(name for name in imported if name != "json")


def test_the_clients_are_found() -> None:
    assert {library(block.text) for block in CLIENTS} == {"azure", "boto3", "huggingface_hub", "openai"}


@pytest.mark.engine
@pytest.mark.parametrize("block", CLIENTS, ids=str)
def test_a_client_prints_the_answer(block: Block, chat_server: Host) -> None:
    code = block.text
    assert (SERVER in code) == (library(code) != "boto3")
    (asked,) = [one for one in QUESTIONS if one.prompt in code]
    python = theirs() if library(code) == "azure" else OURS
    with serving(Bridge(chat_server.url, seed=5).app) as url:
        variables = {
            "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": url,
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        printed = run_python(python, ["-c", code.replace(SERVER, chat_server.url)], variables)
    assert printed == asked.answer + "\n"
