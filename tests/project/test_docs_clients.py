"""The clients in README and docs/clients.md, run as they stand."""

from __future__ import annotations

import re

import pytest

from ..demo.model import QUESTIONS
from ..kit.clients.bridge import Bridge, found_by, serving
from ..kit.clients.scripts import OURS, run_python, theirs
from ..kit.examples import SERVER
from ..kit.hosts.host import Host
from ..kit.pages import Block, blocks_of
from ..kit.paths import DOCS, README

pytestmark = [pytest.mark.engine, pytest.mark.hosts]


def library(code: str) -> str:
    """What an example is about: the first module that it imports and that is not Python's own."""
    imported: list[str] = re.findall(r"^(?:from|import) ([a-z0-9_]+)", code, re.MULTILINE)
    return next(name for name in imported if name != "json")


EXAMPLES = [block for page in (README, DOCS / "clients.md") for block in blocks_of(page) if block.language == "python"]


def test_the_examples_are_found() -> None:
    assert {library(block.text) for block in EXAMPLES} == {"anthropic", "azure", "boto3", "huggingface_hub", "openai"}


@pytest.mark.parametrize("block", EXAMPLES, ids=str)
def test_an_example_prints_the_answer(block: Block, chat_server: Host) -> None:
    code = block.text
    assert (SERVER in code) == (library(code) != "boto3")
    (asked,) = [one for one in QUESTIONS if one.prompt in code]
    python = theirs() if library(code) in ("anthropic", "azure") else OURS
    with serving(Bridge(chat_server.url, seed=5).app) as url:
        printed = run_python(python, ["-c", code.replace(SERVER, chat_server.url)], found_by(url))
    assert printed == asked.answer + "\n"
