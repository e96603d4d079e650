"""What messages of one role in a row say, as the blocks of their contents are read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...model.conversation import Text
from ..conversation.content import Content

__all__ = ["ADDED", "REFERENCE", "REMOVED", "Blocks", "Change"]

REFERENCE, ADDED, REMOVED = "tool_reference", "tool_addition", "tool_removal"


@dataclass(frozen=True, slots=True)
class Change:
    """What a part of a content says of a tool: a REFERENCE to one that was found, or one that is ADDED or REMOVED."""

    kind: str
    name: str
    place: str
    definition: tuple[str, dict[str, Any]] | None = None
    """Of a tool that is not among the request's, as TOOL has read it."""


@dataclass(slots=True)
class Blocks(Content):
    """What messages of one role in a row say."""

    reasoning: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Texts and signatures."""
    calls: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """Ids, names and arguments."""
    results: list[tuple[str, str | Content, bool]] = field(default_factory=list[tuple[str, str | Content, bool]])
    """The ids of their calls, what they say, and whether they are errors."""
    changes: dict[int, Change] = field(default_factory=dict[int, Change])
    """By the indices of the parts in whose places they are: tools that are found, added or removed."""

    def change(self, change: Change) -> None:
        """Adds a change of the tools."""
        self.changes[len(self.parts)] = change
        self.parts.append(Text(change.kind))

    def text(self, text: str) -> None:
        """Adds a text; templates would write the frame of an empty one."""
        if text:
            Content.text(self, text)

    def extend(self, other: str | Blocks) -> None:
        """Adds what the next message says."""
        start = len(self.parts)
        self.add(other)
        if isinstance(other, str):
            return
        self.changes |= {start + index: change for index, change in other.changes.items()}
        self.reasoning += other.reasoning
        self.calls += other.calls
        self.results += other.results
