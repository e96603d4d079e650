"""The examples of docs/agents.md, as they stand there but for the address: what a test runs is what a user reads."""

from __future__ import annotations

from ..pages import blocks_of
from ..paths import DOCS

__all__ = ["example"]

PAGE = DOCS / "agents.md"
ADDRESS = "http://localhost:8080"
"""Of the server, in all examples."""


def example(heading: str, language: str, url: str, number: int = 1) -> str:
    """The block in this language under this heading, the first or `number`, with the server's address in it."""
    lines = PAGE.read_text("utf-8").splitlines()
    begins = lines.index(f"## {heading}") + 1
    ends = next((at for at, line in enumerate(lines[begins:], begins) if line.startswith("## ")), len(lines))
    found = [block for block in blocks_of(PAGE) if begins < block.line <= ends and block.language == language]
    assert len(found) >= number, f"{heading}: {len(found)} blocks of {language}"
    return found[number - 1].text.replace(ADDRESS, url)
