"""What can be declared of a name or a value that is none here: what to write instead, or why it is to be removed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from ...errors import OPTION, Fault, shown

__all__ = ["DEFAULT", "Advice", "Fate", "Row", "by_hand", "gone", "lost", "renamed"]

DEFAULT = "it is the default"

Fate = Literal["renamed", "gone", "lost", "by hand"]
"""`renamed`: other options say it. `gone`: it has no effect here, so that nothing is lost without it. `lost`: it has to
be removed too, but what it asks for is not there. `by hand`: only the user can say it in the words of here."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do about one option as it was given."""

    fate: Fate
    why: str
    """What is to be done `by hand`, as in `set option.x=...`; else why."""
    entries: tuple[tuple[str, str], ...] = ()
    """What takes its place: options, without `option.`, and their texts."""

    @property
    def instead(self) -> str:
        """`option.NAME=VALUE`, several with ` and ` between them; empty: nothing takes its place."""
        return " and ".join(f"{OPTION}{name}={text}" for name, text in self.entries)

    def fault(self, name: str, text: str) -> Fault:
        """What is wrong with the option `name` given as `text`."""
        remove = not self.entries and self.fate != "by hand"
        return Fault(name, f"remove it: {self.why}" if remove else self.why, given=shown(text), instead=self.instead)


@dataclass(frozen=True, slots=True)
class Row:
    """The declaration, of several names for which it is the same."""

    names: tuple[str, ...]
    """Without `option.`; of a value, the option's own."""
    fate: Fate
    why: str
    entries: tuple[tuple[str, str], ...] = ()
    """{value} stands for what was given."""
    value: str = ".*"
    """A pattern of the values that it is about, whatever their case."""
    convert: Callable[[str], str] = str
    """What was given as {value}."""
    until: str = ""
    """The last of the tested versions of vLLM that has the name; empty: none of them has it."""

    def advice(self, text: str) -> Advice | None:
        """For the option given as `text`; None where the row is about other values."""
        if not re.fullmatch(self.value, text, re.IGNORECASE | re.DOTALL):
            return None
        value = self.convert(text)
        entries = tuple((name, template.replace("{value}", value)) for name, template in self.entries)
        return Advice(self.fate, self.why, entries)


def renamed(
    names: str,
    why: str,
    entries: Mapping[str, str],
    *,
    value: str = ".*",
    convert: Callable[[str], str] = str,
) -> Row:
    """Names, with blanks between them, that other options say."""
    return Row(tuple(names.split()), "renamed", why, tuple(entries.items()), value, convert)


def gone(names: str, why: str, *, value: str = ".*", until: str = "") -> Row:
    """Names that need nothing in their place."""
    return Row(tuple(names.split()), "gone", why, value=value, until=until)


def lost(names: str, why: str, *, value: str = ".*", until: str = "") -> Row:
    """Names of what is not there."""
    return Row(tuple(names.split()), "lost", why, value=value, until=until)


def by_hand(names: str, what: str, *, value: str = ".*") -> Row:
    """Names of what is to be written by hand: `what` is to be done."""
    return Row(tuple(names.split()), "by hand", what, value=value)
