"""A line of the serving.properties that `lmi migrate` writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...model.errors import OPTION, Fault, one_line

__all__ = ["Entry", "escaped", "in_ascii"]

_ESCAPED = re.compile(r"\\?([^\n\t\f -~])|\\.", re.DOTALL)
"""What is not ASCII, with the backslash that escapes it, or another escape as it is."""


@dataclass
class Entry:
    """A key with its value, or a comment of the file's own, with what is to be said of it."""

    key: str = ""
    value: str = ""
    raw: str = ""
    """How the file wrote it, where it stays as it is."""
    comments: list[str] = field(default_factory=list[str])
    fault: Fault | None = None
    """Why it is not served; such an entry is a comment too."""

    @property
    def option(self) -> str:
        """The key without `option.`."""
        return self.key.removeprefix(OPTION)

    @property
    def refused(self) -> str:
        """Why it is not served, in words, with what to write instead where there is something; empty: it is."""
        return self.fault.sentence(OPTION) if self.fault else ""

    def text(self) -> Iterator[str]:
        """Its lines."""
        yield from (f"# {one_line(comment)}" for comment in self.comments)
        if self.refused:
            yield f"# refused: {self.refused}"
        if self.key:
            # A comment ends with its line, whatever stands there.
            plain = f"{self.key}={escaped(self.value)}"
            yield f"#{plain}" if self.fault else self.raw or plain
        elif self.raw or not (self.comments or self.fault):
            yield self.raw


def escaped(value: str) -> str:
    """A value as java.util.Properties reads it, in ASCII."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    text = text.replace("\t", "\\t").replace("\f", "\\f")
    if text.startswith(" "):
        text = "\\" + text
    return in_ascii(text)


def in_ascii(text: str) -> str:
    """`text` with what is not ASCII as Java's escapes; white space, which separates there, stays."""
    return _ESCAPED.sub(lambda found: _units(found[1]) if found[1] else found[0], text)


def _units(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
