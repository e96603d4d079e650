"""README and docs/, as tests read them: their fenced blocks, and what is said right before them.

A comment on the line before a block, `<!-- needs ... -->` or `<!-- long: ... -->`, says why no test runs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .paths import DOCS, README, ROOT

__all__ = ["PAGES", "Block", "blocks_of", "prose_of", "response_after"]

PAGES = (README, *sorted(DOCS.rglob("*.md")))
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_REASON = re.compile(r"<!-- ((?:needs |long: )[^>]+) -->\n\Z")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    """Of the fence, from 1."""
    language: str
    text: str
    """Without the indentation of the fence."""
    excused: str
    """Why it is not run, if it is not."""
    section: int
    """How many headings of its page stand before it."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        before = text[: found.start()]
        reason = _REASON.search(before)
        yield Block(
            page=page,
            line=before.count("\n") + 1,
            language=found[2],
            text=re.sub(f"^{found[1]}", "", found[3], flags=re.MULTILINE),
            excused=reason[1] if reason else "",
            section=len(re.findall(r"^#+ ", _FENCE.sub("", before), re.MULTILINE)),
        )


def prose_of(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def response_after(block: Block) -> Block | None:
    """What is shown as the response to the block: the next one, if it is in the same section and no command."""
    after = [one for one in blocks_of(block.page) if one.line > block.line]
    if not after or after[0].section != block.section or after[0].language not in ("json", ""):
        return None
    return after[0]
